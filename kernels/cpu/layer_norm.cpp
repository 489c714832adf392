#include <tandem/kernels/layer_norm.h>

#include <array>

#include <tandem/core/dispatch.h>
#include <tandem/kernels/cpu/loops.h>
#include <tandem/kernels/cpu/norm_sums.h>
#include <tandem/kernels/scratch.h>

namespace tandem::inline v0::kernels {

namespace {

std::int64_t rows_per_chunk(std::int64_t size) { return 1 + cpu::kElementChunk / (size + 16); }

template <class T>
void normalise_row(const LayerNorm& kernel, const T* in, T* out, NormStatistics& statistics) {
  using C = ComputeType<T>;
  statistics = cpu::moments_of(in, kernel.size).statistics(kernel.eps);
  const cpu::Normaliser<C> x(statistics);
  const T* weight = static_cast<const T*>(kernel.weight);
  const T* bias = static_cast<const T*>(kernel.bias);
  if (weight == nullptr && bias == nullptr) {
    for (std::int64_t i = 0; i < kernel.size; ++i) {
      out[i] = T((in[i] - x.mean) * x.rstd + x.shift);
    }
  } else if (bias == nullptr) {
    for (std::int64_t i = 0; i < kernel.size; ++i) {
      out[i] = T(((in[i] - x.mean) * x.rstd + x.shift) * weight[i]);
    }
  } else if (weight == nullptr) {
    for (std::int64_t i = 0; i < kernel.size; ++i) {
      out[i] = T(((in[i] - x.mean) * x.rstd + x.shift) + bias[i]);
    }
  } else {
    for (std::int64_t i = 0; i < kernel.size; ++i) {
      out[i] = T(((in[i] - x.mean) * x.rstd + x.shift) * weight[i] + bias[i]);
    }
  }
}

// `grad_at(i)` is the gradient of the normalised input, in the type that T is computed in.
template <class T, class GradAt>
void row_gradient(const LayerNormGrad& kernel, const T* in, T* out, const NormStatistics& statistics,
                  GradAt&& grad_at) {
  using C = ComputeType<T>;
  const cpu::Normaliser<C> x(statistics);
  const auto [sum, product] = cpu::sums_of<C, 2>(kernel.size, [=](std::int64_t i) {
    const C h = grad_at(i);
    return std::array<C, 2>{h, h * ((in[i] - x.mean) * x.rstd + x.shift)};
  });
  const double count = static_cast<double>(kernel.size);
  const C slope = static_cast<C>(product / count) * x.rstd;
  const C mean = static_cast<C>(sum / count + static_cast<double>(x.shift) * product / count);
  if (kernel.accumulate_in == Accumulate::yes) {
    for (std::int64_t i = 0; i < kernel.size; ++i) {
      out[i] = T(out[i] + (grad_at(i) - mean - (in[i] - x.mean) * slope) * x.rstd);
    }
  } else {
    for (std::int64_t i = 0; i < kernel.size; ++i) {
      out[i] = T((grad_at(i) - mean - (in[i] - x.mean) * slope) * x.rstd);
    }
  }
}

template <class T>
void input_gradient(const LayerNormGrad& kernel) {
  using C = ComputeType<T>;
  core::parallel_for(kernel.rows, rows_per_chunk(kernel.size), [&](std::int64_t begin, std::int64_t end) {
    const T* weight = static_cast<const T*>(kernel.weight);
    for (std::int64_t row = begin; row < end; ++row) {
      const T* grad = static_cast<const T*>(kernel.grad) + row * kernel.size;
      const T* in = static_cast<const T*>(kernel.in) + row * kernel.size;
      T* out = static_cast<T*>(kernel.in_grad) + row * kernel.size;
      if (weight == nullptr) {
        row_gradient(kernel, in, out, kernel.statistics[row], [=](std::int64_t i) { return C(grad[i]); });
      } else {
        row_gradient(kernel, in, out, kernel.statistics[row], [=](std::int64_t i) { return C(grad[i]) * weight[i]; });
      }
    }
  });
}

// Sums over the rows, one tile of columns at a time. If `in` is null, the products are not needed and hold no meaning.
template <class T>
void affine_gradients(Context& context, const LayerNormGrad& kernel) {
  using C = ComputeType<T>;
  struct Sums {
    double grad, product;
  };
  const T* values = static_cast<const T*>(kernel.in == nullptr ? kernel.grad : kernel.in);
  const cpu::Tiles tiles{kernel.rows, kernel.size, 1};
  const ScratchScope scope(context.scratch);
  auto* partial = context.scratch.allocate_array<Sums>(static_cast<std::size_t>(tiles.down * kernel.size));
  cpu::for_each_tile(tiles, [&](const cpu::Tile& tile) {
    double sums[2][cpu::kTileColumns] = {};
    cpu::column_sums<C, 2>(tile.rows, tile.channels, sums, [&](std::int64_t row) {
      const std::int64_t at = (tile.row + row) * kernel.size + tile.channel;
      const cpu::Normaliser<C> x(kernel.statistics[tile.row + row]);
      return [x, grad = static_cast<const T*>(kernel.grad) + at, in = values + at](std::int64_t c) {
        return std::array<C, 2>{grad[c], grad[c] * ((in[c] - x.mean) * x.rstd + x.shift)};
      };
    });
    for (std::int64_t c = 0; c < tile.channels; ++c) {
      partial[tile.part * kernel.size + tile.channel + c] = {sums[0][c], sums[1][c]};
    }
  });
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
    core::parallel_for(kernel.rows, rows_per_chunk(kernel.size), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        normalise_row(kernel, static_cast<const T*>(kernel.in) + row * kernel.size,
                      static_cast<T*>(kernel.out) + row * kernel.size, kernel.statistics[row]);
      }
    });
  });
}

void run(OnCpu, Context& context, const LayerNormGrad& kernel) {
  core::dispatch_floating(kernel.dtype, LayerNorm::kName, [&]<class T>() {
    if (kernel.in_grad != nullptr) {
      input_gradient<T>(kernel);
    }
    if (kernel.weight_grad != nullptr || kernel.bias_grad != nullptr) {
      affine_gradients<T>(context, kernel);
    }
  });
}

}  // namespace tandem::inline v0::kernels
