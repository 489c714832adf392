#include <cstring>

#include <tandem/kernels/cuda/launch/dispatch.h>
#include <tandem/kernels/cuda/patterns/dense.h>
#include <tandem/kernels/cuda/patterns/elementwise.h>
#include <tandem/kernels/fill.h>
#include <tandem/kernels/math.h>

// Floor: one element is written. Fill uses the element-wise walker and moves bits. Arange and linspace are dense and
// have a piece of 16 bytes per thread.

namespace tandem::inline v0::kernels {

namespace {

template <class Item>
struct Constant {
  Item value;

  __device__ Item operator()() const { return value; }
};

/// Counts up from `start` to position `half`, then down from `end`, which is at position `last`.
template <class T>
struct Ramp {
  static constexpr int kPiece = 16 / sizeof(T);

  T* out;
  double start, end, step;
  std::int64_t half, last;

  __device__ void piece(std::int64_t first, int n, bool whole) const {
    Pack<T, kPiece> result;
#pragma unroll
    for (int k = 0; k < kPiece; ++k) {
      const std::int64_t i = first + k;
      result.values[k] = convert<T>(i < half ? start + rounded_mul(static_cast<double>(i), step)
                                             : end - rounded_mul(static_cast<double>(last - i), step));
    }
    store_piece(out + first, result, n, whole);
  }
};

template <class T>
void launch_ramp(const Queue& queue, const char* name, const Ramp<T>& ramp) {
  for_each_piece(queue, name, ramp, ramp.last + 1, aligned_for<Ramp<T>::kPiece>(ramp.out));
}

}  // namespace

void run(OnCuda, Context& context, const Fill& kernel) {
  if (kernel.loop.numel() == 0) {
    return;
  }
  const Queue queue(context);
  std::uint64_t bits = 0;
  for_any(kernel.dtype, [&]<class T>() {
    const T value = convert<T>(kernel.value);
    std::memcpy(&bits, &value, sizeof(value));
  });
  for_item(static_cast<std::int64_t>(item_size(kernel.dtype)), [&]<class Item>() {
    compute_each<Item>(queue, Fill::kName, Constant<Item>{static_cast<Item>(bits)}, kernel.loop, kernel.out);
  });
}

void run(OnCuda, Context& context, const Arange& kernel) {
  const Queue queue(context);
  for_any(kernel.dtype, [&]<class T>() {
    launch_ramp(queue, Arange::kName,
                Ramp<T>{.out = static_cast<T*>(kernel.out),
                        .start = kernel.start,
                        .end = 0,
                        .step = kernel.step,
                        .half = kernel.count,
                        .last = kernel.count - 1});
  });
}

void run(OnCuda, Context& context, const Linspace& kernel) {
  const Queue queue(context);
  const std::int64_t last = kernel.count - 1;
  for_any(kernel.dtype, [&]<class T>() {
    launch_ramp(queue, Linspace::kName,
                Ramp<T>{.out = static_cast<T*>(kernel.out),
                        .start = kernel.start,
                        .end = kernel.end,
                        .step = last > 0 ? (kernel.end - kernel.start) / static_cast<double>(last) : 0,
                        .half = last > 0 ? kernel.count / 2 : 1,
                        .last = last});
  });
}

}  // namespace tandem::inline v0::kernels
