#pragma once

#include <cstdint>

#include <tandem/kernels/cpu/isa/simd.h>
#include <tandem/kernels/cpu/patches.h>

// The columns of a block of patches as places of images.

namespace tandem::inline v0::kernels::cpu::TANDEM_ISA {

/// Columns that lie side by side in an image.
struct Run {
  std::int64_t image, position, count;
};

/// Calls visit(column, run) for the runs of [begin, end), counted from `begin`. If !dense, a run lies in one row of
/// positions.
template <class Visit>
TANDEM_SIMD void for_each_run(const Patches& patches, bool dense, std::int64_t begin, std::int64_t end, Visit&& visit) {
  const std::int64_t positions = patches.positions();
  const std::int64_t longest = dense ? positions : patches.x.positions;
  for (std::int64_t column = begin; column < end;) {
    const std::int64_t position = column % positions;
    const std::int64_t rest = longest - position % longest;
    const std::int64_t here = end - column < rest ? end - column : rest;
    visit(column - begin, Run{column / positions, position, here});
    column += here;
  }
}

/// Puts the sums of a block to their places, or adds them, and lets the ReLU follow.
template <class T>
void place(const PatchProduct& product, std::int64_t begin, std::int64_t end, const T* sums, std::int64_t stride,
           bool add) {
  const Places& out = product.out;
  const bool dense = out.is_dense(product.patches);
  const std::int64_t wide = product.patches.x.positions;
  const std::int64_t step = out.x_stride;
  const bool relu = product.relu;
  for_each_run(product.patches, dense, begin, end, [&](std::int64_t column, const Run& run) {
    const std::int64_t x = run.position % wide;
    const std::int64_t wanted = dense ? run.count : product.patches.width - x;
    const std::int64_t count = run.count < wanted ? run.count : wanted;
    const std::int64_t at = dense ? run.position : run.position / wide * out.y_stride + x * step;
    const auto finished = [=](T value) { return relu && value < T(0) ? T(0) : value; };
    T* to = static_cast<T*>(out.data) + run.image * out.image_stride + at;
    const T* from = sums + column;
    for (std::int64_t row = 0; row < product.rows; ++row, to += out.channel_stride, from += stride) {
      if constexpr (sizeof(T) == sizeof(float) && kLanes > 4) {
        if (step == 1) {
          const auto value = [&](Vec sum, auto... old) __attribute__((always_inline)) {
            sum = (sum + ... + old);
            return relu ? max(broadcast(0), sum) : sum;
          };
          std::int64_t i = 0;
          for (; i + kLanes <= count; i += kLanes) {
            store(to + i, add ? value(load(from + i), load(to + i)) : value(load(from + i)));
          }
          if (i < count) {
            const Mask lanes = first(count - i);
            store(to + i, add ? value(load(from + i, lanes), load(to + i, lanes)) : value(load(from + i, lanes)),
                  lanes);
          }
          continue;
        }
      }
      for (std::int64_t i = 0; i < count; ++i) {
        to[i * step] = finished(add ? to[i * step] + from[i] : from[i]);
      }
    }
  });
}

}  // namespace tandem::inline v0::kernels::cpu::TANDEM_ISA
