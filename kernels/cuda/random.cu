#include <tandem/kernels/cuda/launch/dispatch.h>
#include <tandem/kernels/cuda/launch/step.h>
#include <tandem/kernels/cuda/patterns/dense.h>
#include <tandem/kernels/random.h>

// Floor: one element is written. Each thread has pieces of 16 bytes and computes their Philox blocks, so the only state
// is a counter. An element takes two of a block's numbers, which makes fills of 16-bit types limited by arithmetic
// rather than by memory.

namespace tandem::inline v0::kernels {

namespace {

template <Distribution distribution, class T>
struct RandomPiece {
  static constexpr int kPiece = 16 / sizeof(T);  // even, because a block makes two elements

  T* out;
  double low, high;
  std::uint64_t seed, offset;
  StepArgument state;

  __device__ void piece(std::int64_t first, int n, bool whole) const {
    const std::uint64_t base = state.get().random_offset + offset + static_cast<std::uint64_t>(first / 2);
    Pack<T, kPiece> result;
#pragma unroll
    for (int i = 0; i < kPiece; i += 2) {
      const auto block = philox(seed, base + static_cast<std::uint64_t>(i / 2));
      result.values[i] = draw<distribution, T>(low, high, block[0], block[1]);
      result.values[i + 1] = draw<distribution, T>(low, high, block[2], block[3]);
    }
    store_piece(out + first, result, n, whole);
  }
};

template <Distribution distribution, class T>
void fill_random(const Queue& queue, const RandomFill& kernel) {
  using F = RandomPiece<distribution, T>;
  T* out = static_cast<T*>(kernel.out);
  const F f{out, kernel.low, kernel.high, kernel.seed, kernel.offset, step_argument(queue, kernel.state)};
  for_each_piece(queue, RandomFill::kName, f, kernel.count, aligned_for<F::kPiece>(out));
}

}  // namespace

void run(OnCuda, Context& context, const RandomFill& kernel) {
  const Queue queue(context);
  switch (kernel.distribution) {
    case Distribution::uniform:
      return for_floating(kernel.dtype, [&]<class T>() { fill_random<Distribution::uniform, T>(queue, kernel); });
    case Distribution::normal:
      return for_floating(kernel.dtype, [&]<class T>() { fill_random<Distribution::normal, T>(queue, kernel); });
    case Distribution::integer:
      return for_any(kernel.dtype, [&]<class T>() { fill_random<Distribution::integer, T>(queue, kernel); });
  }
}

}  // namespace tandem::inline v0::kernels
