#include <type_traits>

#include <tandem/kernels/combine.h>
#include <tandem/kernels/cuda/launch/dispatch.h>
#include <tandem/kernels/cuda/patterns/dense.h>

// Floor: every element of every `in` is read once, and every element of every `out` written once.

namespace tandem::inline v0::kernels {

namespace {

template <class T, CombineOp kOp>
struct Combined {
  static constexpr int kPiece = 16 / sizeof(T);
  using C = ComputeType<T>;

  const T* in[Combine::kMost];
  T* out[Combine::kMost];
  int ins, outs, divisor;

  __device__ void piece(std::int64_t first, int n, bool whole) const {
    C sums[kPiece];
    Pack<T, kPiece> pack = load_piece<kPiece>(in[0] + first, n, whole);
#pragma unroll
    for (int i = 0; i < kPiece; ++i) {
      sums[i] = static_cast<C>(pack.values[i]);
    }
    for (int k = 1; k < ins; ++k) {
      pack = load_piece<kPiece>(in[k] + first, n, whole);
#pragma unroll
      for (int i = 0; i < kPiece; ++i) {
        sums[i] = formula::combined<kOp>(sums[i], static_cast<C>(pack.values[i]));
      }
    }
#pragma unroll
    for (int i = 0; i < kPiece; ++i) {
      if constexpr (kOp == CombineOp::avg && std::is_floating_point_v<C>) {
        sums[i] /= static_cast<C>(divisor);
      }
      pack.values[i] = static_cast<T>(sums[i]);
    }
    for (int k = 0; k < outs; ++k) {
      store_piece(out[k] + first, pack, n, whole);
    }
  }
};

template <class T, CombineOp kOp>
void combine(const Queue& queue, const Combine& kernel) {
  Combined<T, kOp> f{};
  f.ins = kernel.ins;
  f.outs = kernel.outs;
  f.divisor = kernel.divisor;
  bool aligned = true;
  for (int k = 0; k < kernel.ins; ++k) {
    f.in[k] = static_cast<const T*>(kernel.in[k]);
    aligned = aligned && aligned_for<Combined<T, kOp>::kPiece>(f.in[k]);
  }
  for (int k = 0; k < kernel.outs; ++k) {
    f.out[k] = static_cast<T*>(kernel.out[k]);
    aligned = aligned && aligned_for<Combined<T, kOp>::kPiece>(f.out[k]);
  }
  for_each_piece(queue, Combine::kName, f, kernel.count, aligned);
}

}  // namespace

void run(OnCuda, Context& context, const Combine& kernel) {
  const Queue queue(context);
  for_any(kernel.dtype, [&]<class T>() {
    // The sum of truth values is the largest, and their product the least.
    constexpr bool kTruth = std::is_same_v<T, bool>;
    switch (kernel.op) {
      case CombineOp::sum: return combine<T, kTruth ? CombineOp::max : CombineOp::sum>(queue, kernel);
      case CombineOp::min: return combine<T, CombineOp::min>(queue, kernel);
      case CombineOp::max: return combine<T, CombineOp::max>(queue, kernel);
      case CombineOp::product: return combine<T, kTruth ? CombineOp::min : CombineOp::product>(queue, kernel);
      case CombineOp::avg: break;
    }
    if constexpr (std::is_floating_point_v<ComputeType<T>>) {
      combine<T, CombineOp::avg>(queue, kernel);
    }
  });
}

}  // namespace tandem::inline v0::kernels
