#include <tandem/kernels/cpu/gemm.h>
#include <tandem/kernels/cpu/isa/patch_runs.h>

// The products of convolutions by Eigen, with the patches of a block written out: for f64, and for f32 where the
// instruction set has no product of tandem's own.

namespace tandem::inline v0::kernels::cpu::TANDEM_ISA {

namespace {

template <class T>
void multiply(const Matmul& kernel, ScratchArena& scratch) {
  const OutputBlock all{0, kernel.m, 0, kernel.n};
  if constexpr (sizeof(T) == sizeof(double)) {
    eigen_product_f64(kernel, all);
  } else {
    gemm_f32(kernel, all, scratch);
  }
}

// Rows [first, last) of the patches' columns [begin, end), to rows of end - begin elements.
template <class T>
void write_patches(const Patches& patches, std::int64_t begin, std::int64_t end, std::int64_t first, std::int64_t last,
                   T* to) {
  const std::int64_t wide = patches.x.positions;
  for (std::int64_t k = first; k < last; ++k, to += end - begin) {
    const std::int64_t tap = k % patches.taps();
    const T* channel = static_cast<const T*>(patches.data) + k / patches.taps() * patches.y.size * patches.x.size;
    for_each_run(patches, false, begin, end, [&](std::int64_t column, const Run& run) {
      const std::int64_t y = patches.y.at(run.position / wide, tap / patches.x.taps);
      const bool inside = y >= 0 && y < patches.y.size;
      const T* line = channel + run.image * patches.image_stride + (inside ? y * patches.x.size : 0);
      for (std::int64_t i = 0; i < run.count; ++i) {
        const std::int64_t x = patches.x.at(run.position % wide + i, tap % patches.x.taps);
        to[column + i] = inside && x >= 0 && x < patches.x.size ? line[x] : T(0);
      }
    });
  }
}

// How many columns of `depth` elements to write out at a time.
std::int64_t columns_to_write(std::int64_t depth) {
  constexpr std::int64_t kMost = std::int64_t{1} << 22;  // elements, in scratch memory
  const std::int64_t columns = kMost / depth;
  return columns < 1 ? 1 : columns < kPatchColumns ? columns : kPatchColumns;
}

template <class T>
constexpr DType type_of() {
  return sizeof(T) == sizeof(double) ? DType::f64 : DType::f32;
}

template <class T>
void patch_product(const PatchProduct& product, const PatchRange& range, ScratchArena& scratch) {
  const std::int64_t depth = product.patches.depth();
  const std::int64_t most = columns_to_write(depth);
  const ScratchScope scope(scratch);
  T* const patches = scratch.allocate_array<T>(static_cast<std::size_t>(depth * most));
  T* const sums = scratch.allocate_array<T>(static_cast<std::size_t>(product.rows * most));
  for (std::int64_t group = range.group; group < range.last_group; ++group) {
    const PatchProduct one = product.of_group<T>(group);
    for (std::int64_t column = range.begin; column < range.end; column += most) {
      const std::int64_t cols = range.end - column < most ? range.end - column : most;
      write_patches(one.patches, column, column + cols, 0, depth, patches);
      multiply<T>({.dtype = type_of<T>(),
                   .m = one.rows,
                   .n = cols,
                   .k = depth,
                   .a = {one.weight, depth, 1},
                   .b = {patches, cols, 1},
                   .out = sums,
                   .out_stride = cols},
                  scratch);
      if (one.bias != nullptr) {
        const T* bias = static_cast<const T*>(one.bias);
        for (std::int64_t i = 0; i < one.rows * cols; ++i) {
          sums[i] += bias[i / cols];
        }
      }
      place(one, column, column + cols, sums, cols, one.add);
    }
  }
}

template <class T>
void patch_gradient(const PatchGradient& gradient, const GradientRange& range, T* sums, ScratchArena& scratch) {
  const std::int64_t rows = gradient.rows;
  const std::int64_t positions = gradient.patches.positions();
  const std::int64_t depth = gradient.patches.depth();
  const ScratchScope scope(scratch);
  const std::int64_t most = columns_to_write(range.last - range.first);
  T* const patches = scratch.allocate_array<T>(static_cast<std::size_t>((range.last - range.first) * most));
  T* const grad = scratch.allocate_array<T>(static_cast<std::size_t>(rows * most));
  for (std::int64_t group = range.group; group < range.last_group; ++group) {
    const PatchGradient one = gradient.of_group<T>(group);
    for (std::int64_t column = range.begin; column < range.end; column += most) {
      const std::int64_t cols = range.end - column < most ? range.end - column : most;
      write_patches(one.patches, column, column + cols, range.first, range.last, patches);
      for_each_run(one.patches, true, column, column + cols, [&](std::int64_t at, const Run& run) {
        const T* from = static_cast<const T*>(one.grad) + run.image * one.grad_image_stride + run.position;
        for (std::int64_t row = 0; row < rows; ++row) {
          for (std::int64_t i = 0; i < run.count; ++i) {
            grad[row * cols + at + i] = from[row * positions + i];
          }
        }
      });
      const bool adds = range.add || column > range.begin;
      Matmul product{.dtype = type_of<T>(),
                     .accumulate = adds ? Accumulate::yes : Accumulate::no,
                     .m = range.last - range.first,
                     .n = rows,
                     .k = cols,
                     .a = {patches, cols, 1},
                     .b = {grad, 1, cols},
                     .out = sums + (group * depth + range.first) * rows,
                     .out_stride = rows};
      if (range.like_weights) {
        product.m = rows;
        product.n = range.last - range.first;
        product.a = {grad, cols, 1};
        product.b = {patches, 1, cols};
        product.out = sums + group * depth * rows + range.first;
        product.out_stride = depth;
      }
      multiply<T>(product, scratch);
    }
  }
}

template <class T>
void add_transposed(const T* matrices, std::int64_t parts, std::int64_t stride, std::int64_t rows, std::int64_t cols,
                    bool add, T* out) {
  for (std::int64_t col = 0; col < cols; ++col) {
    for (std::int64_t row = 0; row < rows; ++row) {
      T sum = matrices[row * cols + col];
      for (std::int64_t part = 1; part < parts; ++part) {
        sum += matrices[part * stride + row * cols + col];
      }
      T& to = out[col * rows + row];
      to = add ? to + sum : sum;
    }
  }
}

}  // namespace

void patch_product_f64(const PatchProduct& product, const PatchRange& range, ScratchArena& scratch) {
  patch_product<double>(product, range, scratch);
}

void patch_gradient_f64(const PatchGradient& gradient, const GradientRange& range, double* sums,
                        ScratchArena& scratch) {
  patch_gradient<double>(gradient, range, sums, scratch);
}

void add_transposed_f64(const double* matrices, std::int64_t parts, std::int64_t stride, std::int64_t rows,
                        std::int64_t cols, bool add, double* out) {
  add_transposed<double>(matrices, parts, stride, rows, cols, add, out);
}

#if !defined(__AVX2__)

void patch_product_f32(const PatchProduct& product, const PatchRange& range, ScratchArena& scratch) {
  patch_product<float>(product, range, scratch);
}

void patch_gradient_f32(const PatchGradient& gradient, const GradientRange& range, float* sums, ScratchArena& scratch) {
  patch_gradient<float>(gradient, range, sums, scratch);
}

void add_transposed_f32(const float* matrices, std::int64_t parts, std::int64_t stride, std::int64_t rows,
                        std::int64_t cols, bool add, float* out) {
  add_transposed<float>(matrices, parts, stride, rows, cols, add, out);
}

#endif

}  // namespace tandem::inline v0::kernels::cpu::TANDEM_ISA
