#include <tandem/kernels/layer_norm.h>

#include <algorithm>
#include <type_traits>

#include <tandem/core/dispatch.h>
#include <tandem/kernels/cpu/layer_norm_rows.h>
#include <tandem/kernels/cpu/loops.h>
#include <tandem/kernels/scratch.h>

namespace tandem::inline v0::kernels {

namespace {

std::int64_t rows_per_chunk(std::int64_t size) { return 1 + cpu::kElementChunk / (size + 16); }

// Whether rows of 16 bits are widened as a whole: those that are worth the calls, and as floats still fit in the
// second-level cache.
bool is_widened(std::int64_t size) { return size >= 32 && size <= 65'536; }

// Rows of 16 bits, which the loops for f32 get widened, in the scratch memory of the thread.
template <class T>
class WidenedRows {
 public:
  explicit WidenedRows(std::int64_t size) : scratch_(context_for(Device()).scratch), scope_(scratch_), size_(size) {}

  float* place() { return scratch_.allocate_array<float>(static_cast<std::size_t>(size_)); }
  void read(float* place, const void* from, std::int64_t row) const {
    cpu::widen(place, static_cast<const T*>(from) + row * size_, size_);
  }
  void write(void* to, std::int64_t row, const float* place) const {
    cpu::narrow(static_cast<T*>(to) + row * size_, place, size_);
  }
  /// A widened copy of the only row there is, or null.
  const float* copy(const void* from) {
    if (from == nullptr) {
      return nullptr;
    }
    float* const widened = place();
    read(widened, from, 0);
    return widened;
  }

 private:
  ScratchArena& scratch_;
  ScratchScope scope_;
  std::int64_t size_;
};

template <class T>
void normalise_widened(const LayerNorm& kernel, std::int64_t begin, std::int64_t end) {
  WidenedRows<T> rows(kernel.size);
  float* const values = rows.place();
  LayerNorm widened = kernel;
  widened.in = widened.out = values;
  widened.weight = rows.copy(kernel.weight);
  widened.bias = rows.copy(kernel.bias);
  for (std::int64_t row = begin; row < end; ++row) {
    rows.read(values, kernel.in, row);
    widened.statistics = kernel.statistics + row;
    TANDEM_BY_ISA(normalise_row_f32)(widened, 0);
    rows.write(kernel.out, row, values);
  }
}

template <class T>
void input_gradient_widened(const LayerNormGrad& kernel, std::int64_t begin, std::int64_t end) {
  WidenedRows<T> rows(kernel.size);
  float* const grad = rows.place();
  float* const in = rows.place();
  float* const in_grad = rows.place();
  LayerNormGrad widened = kernel;
  widened.grad = grad;
  widened.in = in;
  widened.in_grad = in_grad;
  widened.weight = rows.copy(kernel.weight);
  for (std::int64_t row = begin; row < end; ++row) {
    rows.read(grad, kernel.grad, row);
    rows.read(in, kernel.in, row);
    if (kernel.accumulate_in == Accumulate::yes) {
      rows.read(in_grad, kernel.in_grad, row);
    }
    widened.statistics = kernel.statistics + row;
    TANDEM_BY_ISA(row_gradient_f32)(widened, 0);
    rows.write(kernel.in_grad, row, in_grad);
  }
}

template <class T>
void normalise(const LayerNorm& kernel, std::int64_t begin, std::int64_t end) {
  if constexpr (is_16_bit<T>) {
    if (is_widened(kernel.size)) {
      return normalise_widened<T>(kernel, begin, end);
    }
  }
  for (std::int64_t row = begin; row < end; ++row) {
    if constexpr (std::is_same_v<T, float>) {
      TANDEM_BY_ISA(normalise_row_f32)(kernel, row);
    } else {
      cpu::normalise_row<T>(kernel, row);
    }
  }
}

template <class T>
void input_gradient(const LayerNormGrad& kernel, std::int64_t begin, std::int64_t end) {
  if constexpr (is_16_bit<T>) {
    if (is_widened(kernel.size)) {
      return input_gradient_widened<T>(kernel, begin, end);
    }
  }
  for (std::int64_t row = begin; row < end; ++row) {
    if constexpr (std::is_same_v<T, float>) {
      TANDEM_BY_ISA(row_gradient_f32)(kernel, row);
    } else {
      cpu::row_gradient<T>(kernel, row);
    }
  }
}

// Sums over the rows, one tile of columns at a time. With `rows_too` a tile's rows get the gradient of their input
// first, while they are in a cache.
template <class T>
void affine_gradients(Context& context, const LayerNormGrad& kernel, bool rows_too) {
  struct Sums {
    double grad, product;
  };
  const cpu::Tiles tiles{kernel.rows, kernel.size, 1};
  const ScratchScope scope(context.scratch);
  auto* partial = context.scratch.allocate_array<Sums>(static_cast<std::size_t>(tiles.down * kernel.size));
  const auto sum_tile = [&](const cpu::NormTile& tile) {
    double sums[2][cpu::kTileColumns] = {};
    if constexpr (std::is_same_v<T, float>) {
      TANDEM_BY_ISA(affine_sums_f32)(kernel, tile, sums);
    } else {
      cpu::affine_sums<T>(kernel, tile, sums);
    }
    for (std::int64_t c = 0; c < tile.channels; ++c) {
      partial[tile.part * kernel.size + tile.channel + c] = {sums[0][c], sums[1][c]};
    }
  };
  if (rows_too) {
    core::parallel_for(tiles.down, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t part = begin; part < end; ++part) {
        const std::int64_t row = part * tiles.height;
        const std::int64_t rows = std::min(tiles.height, kernel.rows - row);
        input_gradient<T>(kernel, row, row + rows);
        for (std::int64_t column = 0; column < kernel.size; column += tiles.width) {
          sum_tile({column, std::min(tiles.width, kernel.size - column), row, rows, part});
        }
      }
    });
  } else {
    cpu::for_each_tile(tiles, sum_tile);
  }
  core::parallel_for(kernel.size, 1 + cpu::kElementChunk / (tiles.down + 16),
                     [&](std::int64_t begin, std::int64_t end) {
                       for (std::int64_t c = begin; c < end; ++c) {
                         Sums all{};
                         for (std::int64_t part = 0; part < tiles.down; ++part) {
                           all.grad += partial[part * kernel.size + c].grad;
                           all.product += partial[part * kernel.size + c].product;
                         }
                         if (kernel.weight_grad != nullptr) {
                           cpu::store_gradient<T>(kernel.weight_grad, c, all.product, kernel.accumulate_weight);
                         }
                         if (kernel.bias_grad != nullptr) {
                           cpu::store_gradient<T>(kernel.bias_grad, c, all.grad, kernel.accumulate_bias);
                         }
                       }
                     });
}

}  // namespace

void run(OnCpu, Context&, const LayerNorm& kernel) {
  core::dispatch_floating(kernel.dtype, LayerNorm::kName, [&]<class T>() {
    core::parallel_for(kernel.rows, rows_per_chunk(kernel.size),
                       [&](std::int64_t begin, std::int64_t end) { normalise<T>(kernel, begin, end); });
  });
}

void run(OnCpu, Context& context, const LayerNormGrad& kernel) {
  core::dispatch_floating(kernel.dtype, LayerNorm::kName, [&]<class T>() {
    constexpr std::int64_t kCached = 1 << 18;  // elements that the second of two passes finds in a cache
    const bool affine = kernel.weight_grad != nullptr || kernel.bias_grad != nullptr;
    const bool together = affine && kernel.in_grad != nullptr && kernel.rows * kernel.size > 4 * kCached;
    if (kernel.in_grad != nullptr && !together) {
      core::parallel_for(kernel.rows, rows_per_chunk(kernel.size),
                         [&](std::int64_t begin, std::int64_t end) { input_gradient<T>(kernel, begin, end); });
    }
    if (affine) {
      affine_gradients<T>(context, kernel, together);
    }
  });
}

}  // namespace tandem::inline v0::kernels
