#include <tandem/kernels/cuda/launch/dispatch.h>
#include <tandem/kernels/cuda/matmul/planner.h>
#include <tandem/kernels/cuda/patterns/elementwise.h>
#include <tandem/kernels/cuda/patterns/reduction.h>
#include <tandem/kernels/matmul.h>

// Per element: the product is read and written, the mask read; the bias comes from the cache. Bits and sums, where
// cuBLASLt does not write them, read the product once more each.

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
      const bool off = mask != nullptr && relu_is_off(C(values.mask.values[i]));
      result.values[i] = T(off ? C(0) : value);
    }
    *reinterpret_cast<Pack<T, V>*>(out + offsets[0]) = result;
  }
};

// Applies the mask to a product and sums its columns: the gradients of a ReLU's input and of the bias before it. Both
// read the product, and the first writes it, in one pass.
template <class T>
struct MaskedSums {
  using C = ComputeType<T>;
  using Lane = C;
  using Total = double;
  struct Column {};
  template <int V>
  using Values = Pack<T, V>;

  T* out;
  const T* mask;
  T* sums;

  __device__ Column column(std::int64_t) const { return {}; }
  template <int V>
  __device__ __forceinline__ Values<V> load(std::int64_t offset, std::int64_t) const {
    Values<V> values = load_pack<V>(out + offset, true);
    const Values<V> results = load_pack<V>(mask + offset, true);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      values.values[i] = relu_is_off(C(results.values[i])) ? T(C(0)) : values.values[i];
    }
    *reinterpret_cast<Values<V>*>(out + offset) = values;
    return values;
  }
  template <int V>
  __device__ __forceinline__ void add(Lane& sum, const Values<V>& values, int i, std::int64_t, Column) const {
    sum += C(values.values[i]);
  }
  static __device__ Total join(Total total, Lane lane) { return total + static_cast<double>(lane); }
  static __device__ Total combine(Total a, Total b) { return a + b; }
  __device__ void store(std::int64_t column, Total total) const { sums[column] = T(static_cast<C>(total)); }
};

void mask_and_sum(const Queue& queue, const Matmul& product) {
  const std::int64_t across[] = {1};
  const std::int64_t down[] = {product.out_stride};
  for_floating(product.dtype, [&]<class T>() {
    T* out = static_cast<T*>(product.out);
    const T* mask = static_cast<const T*>(product.after.relu_mask);
    reduce<16 / static_cast<int>(sizeof(T))>(queue, Matmul::kName,
                                             MaskedSums<T>{out, mask, static_cast<T*>(product.after.column_sums)},
                                             ReductionProblem{.kept = {1, {product.n}},
                                                              .reduced = {1, {product.m}},
                                                              .kept_strides = across,
                                                              .reduced_strides = down,
                                                              .alignment = kernels::alignment_of(out, mask),
                                                              .item = sizeof(T)});
  });
}

constexpr int kThreads = 256;

// Byte i of all rows' bytes: eight neighbours.
template <class T>
__global__ void __launch_bounds__(kThreads)
    write_bits(const T* out, std::int64_t stride, std::int64_t columns, std::uint8_t* bits, std::int64_t count) {
  const std::int64_t used = (columns + 7) / 8;
  const std::int64_t threads = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += threads) {
    const std::int64_t row = i / used;
    const std::int64_t first = (i - row * used) * 8;
    unsigned int byte = 0;
    for (int bit = 0; bit < 8 && first + bit < columns; ++bit) {
      byte |= relu_is_off(ComputeType<T>(out[row * stride + first + bit])) ? 0u : 1u << bit;
    }
    bits[row * relu_bits_stride(columns) + first / 8] = static_cast<std::uint8_t>(byte);
  }
}

void apply(const Queue& queue, const Matmul& product, bool clear) {
  Loop loop{.ndim = 2, .sizes = {product.m, product.n}};
  Operand out{.data = product.out, .strides = {product.out_stride, 1}};
  Operand bias{.data = nullptr, .strides = {0, 1}};
  Operand mask{.data = nullptr, .strides = {product.out_stride, 1}};
  simplify(loop, {&out, &bias, &mask});
  for_floating(product.dtype, [&]<class T>() {
    for_each(queue, Matmul::kName,
             EpilogueFunctor<T>{static_cast<T*>(product.out), static_cast<const T*>(product.after.bias),
                                static_cast<const T*>(product.after.relu_mask), product.after.relu,
                                clear && product.accumulate == Accumulate::no},
             loop, {out.strides, bias.strides, mask.strides});
  });
}

}  // namespace

void finish_product(const Queue& queue, const Matmul& product, bool clear) {
  if (product.m > 0 && product.n > 0 && product.after.relu_mask != nullptr && product.after.column_sums != nullptr &&
      product.after.bias == nullptr && !product.after.relu && !clear) {
    mask_and_sum(queue, product);
    Matmul rest = product;
    rest.after.relu_mask = nullptr;
    rest.after.column_sums = nullptr;
    return finish_product(queue, rest, false);
  }
  if (product.m > 0 && product.n > 0) {
    if (clear || product.after.bias != nullptr || product.after.relu || product.after.relu_mask != nullptr) {
      apply(queue, product, clear);
    }
    if (product.after.relu_bits != nullptr) {
      const std::int64_t count = product.m * ((product.n + 7) / 8);
      for_floating(product.dtype, [&]<class T>() {
        queue.launch(Matmul::kName, dim3(queue.blocks_for(count, kThreads)), dim3(kThreads), 0, write_bits<T>,
                     static_cast<const T*>(product.out), product.out_stride, product.n,
                     static_cast<std::uint8_t*>(product.after.relu_bits), count);
      });
    }
  }
  if (product.after.column_sums != nullptr && product.n > 0) {
    run(OnCuda{}, queue.context(), column_sums_of(product));
  }
  if (product.after.a_sums != nullptr && product.m > 0) {
    run(OnCuda{}, queue.context(), a_sums_of(product));
  }
}

}  // namespace tandem::inline v0::kernels::gpu
