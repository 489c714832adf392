#include <tandem/kernels/cuda/dispatch.h>
#include <tandem/kernels/cuda/elementwise.h>
#include <tandem/kernels/cuda/matmul/epilogue.h>

// Per element: the product is read and written, the mask read; the bias comes from the cache.

namespace tandem::inline v0::kernels::gpu {

namespace {

template <class T>
struct EpilogueFunctor {
  using C = ComputeType<T>;
  static constexpr int kOperands = 3;
  static constexpr int kBytes = sizeof(T);

  T* out;
  const T* bias;  // or null
  const T* mask;  // or null
  bool relu;
  bool clear;

  const void* data(int i) const { return i == 0 ? out : i == 1 ? bias : mask; }
  int size(int) const { return sizeof(T); }
  EpilogueFunctor advanced(const std::int64_t* offsets) const {
    return {out + offsets[0], bias == nullptr ? bias : bias + offsets[1], mask == nullptr ? mask : mask + offsets[2],
            relu, clear};
  }

  template <int V>
  struct Values {
    Pack<T, V> sum, bias, mask;
  };
  template <int V>
  __device__ void load(Values<V>& values, const std::int64_t* offsets, const bool* dense) const {
    if (!clear) {
      values.sum = load_pack<V>(out + offsets[0], true);
    }
    if (bias != nullptr) {
      values.bias = load_pack<V>(bias + offsets[1], dense[1]);
    }
    if (mask != nullptr) {
      values.mask = load_pack<V>(mask + offsets[2], dense[2]);
    }
  }
  template <int V>
  __device__ void store(const Values<V>& values, const std::int64_t* offsets) const {
    Pack<T, V> result;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      C value = clear ? C(0) : C(values.sum.values[i]);
      value += bias != nullptr ? C(values.bias.values[i]) : C(0);
      value = relu && value < C(0) ? C(0) : value;
      const bool off = mask != nullptr && !(C(values.mask.values[i]) > C(0));
      result.values[i] = T(off ? C(0) : value);
    }
    *reinterpret_cast<Pack<T, V>*>(out + offsets[0]) = result;
  }
};

}  // namespace

void finish_product(const Queue& queue, const Matmul& product, bool clear) {
  Loop loop{.ndim = 2, .sizes = {product.m, product.n}};
  Operand out{.data = product.out, .strides = {product.out_stride, 1}};
  Operand bias{.data = nullptr, .strides = {0, 1}};
  Operand mask{.data = nullptr, .strides = {product.out_stride, 1}};
  simplify(loop, {&out, &bias, &mask});
  for_floating(product.dtype, [&]<class T>() {
    for_each(queue, Matmul::kName,
             EpilogueFunctor<T>{static_cast<T*>(product.out), static_cast<const T*>(product.bias),
                                static_cast<const T*>(product.relu_mask), product.relu,
                                clear && product.accumulate == Accumulate::no},
             loop, {out.strides, bias.strides, mask.strides});
  });
}

}  // namespace tandem::inline v0::kernels::gpu
