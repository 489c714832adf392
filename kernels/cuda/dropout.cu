#include <tandem/kernels/dropout.h>

#include <tandem/kernels/cuda/launch/dispatch.h>
#include <tandem/kernels/cuda/launch/step.h>
#include <tandem/kernels/cuda/patterns/dense.h>
#include <tandem/kernels/random.h>

// Floors: dropout reads and writes an element and writes a byte; its gradient reads an element and a byte and writes an
// element. Each thread handles pieces of 16 bytes and computes their Philox blocks itself.

namespace tandem::inline v0::kernels {

namespace {

template <class T>
struct DropoutPiece {
  using C = ComputeType<T>;
  static constexpr int kPiece = 16 / sizeof(T);

  const T* in;
  T* out;
  std::uint8_t* mask;
  C scale;
  float p;
  std::uint64_t seed, offset;
  StepArgument state;

  __device__ void piece(std::int64_t first, int n, bool whole) const {
    const Pack<T, kPiece> values = load_piece<kPiece>(in + first, n, whole);
    const std::uint64_t base = state.get().random_offset + offset + static_cast<std::uint64_t>(first / 4);
    Pack<T, kPiece> result;
    Pack<std::uint8_t, kPiece> kept;
    if constexpr (kPiece >= 4) {
#pragma unroll
      for (int i = 0; i < kPiece; i += 4) {
        const auto block = philox(seed, base + static_cast<std::uint64_t>(i / 4));
#pragma unroll
        for (int lane = 0; lane < 4; ++lane) {
          element(values, result, kept, i + lane, block[static_cast<std::size_t>(lane)]);
        }
      }
    } else {  // a piece is half a block
      const auto block = philox(seed, base);
      const bool second_half = first % 4 != 0;
      element(values, result, kept, 0, second_half ? block[2] : block[0]);
      element(values, result, kept, 1, second_half ? block[3] : block[1]);
    }
    store_piece(out + first, result, n, whole);
    store_piece(mask + first, kept, n, whole);
  }
  __device__ void element(const Pack<T, kPiece>& values, Pack<T, kPiece>& result, Pack<std::uint8_t, kPiece>& kept,
                          int i, std::uint32_t bits) const {
    const bool keep = uniform_f32(bits) >= p;
    kept.values[i] = keep ? 1 : 0;
    result.values[i] = T(keep ? values.values[i] * scale : C(0));
  }
};

template <class T>
struct DropoutGradPiece {
  using C = ComputeType<T>;
  static constexpr int kPiece = 16 / sizeof(T);

  const T* grad;
  const std::uint8_t* mask;
  T* in_grad;
  C scale;
  bool accumulate;

  __device__ void piece(std::int64_t first, int n, bool whole) const {
    const Pack<T, kPiece> grads = load_piece<kPiece>(grad + first, n, whole);
    const Pack<std::uint8_t, kPiece> kept = load_piece<kPiece>(mask + first, n, whole);
    Pack<T, kPiece> before{};
    if (accumulate) {
      before = load_piece<kPiece>(in_grad + first, n, whole);
    }
    Pack<T, kPiece> result;
#pragma unroll
    for (int i = 0; i < kPiece; ++i) {
      const C value = kept.values[i] != 0 ? rounded_mul(C(grads.values[i]), scale) : C(0);
      result.values[i] = T(accumulate ? before.values[i] + value : value);
    }
    store_piece(in_grad + first, result, n, whole);
  }
};

// p = 1 drops everything; 1 / (1 - p) must not turn that into NaN.
template <class C>
C scale_of(double p) {
  return p < 1 ? static_cast<C>(1 / (1 - p)) : C(0);
}

}  // namespace

void run(OnCuda, Context& context, const Dropout& kernel) {
  const Queue queue(context);
  for_floating(kernel.dtype, [&]<class T>() {
    using F = DropoutPiece<T>;
    const F f{.in = static_cast<const T*>(kernel.in),
              .out = static_cast<T*>(kernel.out),
              .mask = kernel.mask,
              .scale = scale_of<ComputeType<T>>(kernel.p),
              .p = static_cast<float>(kernel.p),
              .seed = kernel.seed,
              .offset = kernel.offset,
              .state = step_argument(queue, kernel.state)};
    const bool aligned =
        aligned_for<F::kPiece>(f.in) && aligned_for<F::kPiece>(f.out) && aligned_for<F::kPiece>(f.mask);
    for_each_piece(queue, Dropout::kName, f, kernel.count, aligned);
  });
}

void run(OnCuda, Context& context, const DropoutGrad& kernel) {
  const Queue queue(context);
  for_floating(kernel.dtype, [&]<class T>() {
    using F = DropoutGradPiece<T>;
    const F f{.grad = static_cast<const T*>(kernel.grad),
              .mask = kernel.mask,
              .in_grad = static_cast<T*>(kernel.in_grad),
              .scale = scale_of<ComputeType<T>>(kernel.p),
              .accumulate = kernel.accumulate == Accumulate::yes};
    const bool aligned =
        aligned_for<F::kPiece>(f.grad) && aligned_for<F::kPiece>(f.mask) && aligned_for<F::kPiece>(f.in_grad);
    for_each_piece(queue, DropoutGrad::kName, f, kernel.count, aligned);
  });
}

}  // namespace tandem::inline v0::kernels
