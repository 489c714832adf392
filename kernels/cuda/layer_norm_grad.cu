#include <tandem/kernels/layer_norm.h>

#include <algorithm>

#include <tandem/kernels/cuda/launch/dispatch.h>
#include <tandem/kernels/cuda/patterns/block.h>
#include <tandem/kernels/cuda/patterns/reduction.h>
#include <tandem/kernels/cuda/patterns/register_rows.h>
#include <tandem/kernels/norm_formulas.h>

// Layer norm's backward pass. Floor: gradient and input are read once and the input's gradient is written, 3 *
// sizeof(T) bytes per element. A group of threads takes up to 64 rows, one after the other, each in registers. The
// group's sums for the gradients of weight and bias also stay in registers, and are written after the last row, for a
// second kernel. Rows too long for registers are read again, and kernels of their own sum the columns.

namespace tandem::inline v0::kernels {

namespace {

// One pack of a row in each thread leaves registers for two sums of each of its columns.
using Rows = RegisterRows<1024, 1>;
constexpr int kMostRows = 64;  // sums of more rows would lose digits

template <class C>
struct Affine {
  C* grad;  // [units, size]; a unit is the sum of `rows` rows
  C* product;
  std::int64_t rows;
};

template <class T, int V, bool kKept, bool kAffine>
__global__ void __launch_bounds__(Rows::kThreads, 1)
    row_gradients(LayerNormGrad kernel, Rows rows, Affine<ComputeType<T>> affine) {
  using C = ComputeType<T>;
  const T* weight = static_cast<const T*>(kernel.weight);
  const bool accumulate = kernel.accumulate_in == Accumulate::yes;
  const auto count = static_cast<C>(rows.size);
  const std::int64_t unit = std::int64_t{blockIdx.x} * rows.units() + static_cast<int>(threadIdx.x) / rows.group;
  constexpr int kSums = kAffine ? Rows::kPacks : 1;
  C grad_sums[kSums][V] = {};
  C product_sums[kSums][V] = {};
  for (std::int64_t r = 0; r < affine.rows; ++r) {
    const std::int64_t row = unit * affine.rows + r;
    const bool valid = row < rows.rows;
    const std::int64_t begin = valid ? row * rows.size : 0;  // all threads of a block must take part in the sums
    const RowPacks<Rows, T, V, kKept> grad(rows, static_cast<const T*>(kernel.grad) + begin);
    const RowPacks<Rows, T, V, kKept> in(rows, static_cast<const T*>(kernel.in) + begin);
    const Normaliser<C> x(kernel.statistics[valid ? row : 0]);
    const auto factors_at = [&](std::int64_t i) {
      return weight != nullptr ? load_pack<V>(weight + i * V, true) : Pack<T, V>{};
    };
    const auto times = [&](C g, T factor) { return weight != nullptr ? g * C(factor) : g; };
    TwoSums<C> sums;
    for_each_pack<kKept>(rows, [&](std::int64_t i, int k) {
      const Pack<T, V> g = grad.at(i, k);
      const Pack<T, V> values = in.at(i, k);
      const Pack<T, V> factors = factors_at(i);
      TwoSums<C> of_pack;
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const C normalised = (C(values.values[v]) - x.mean) * x.rstd + x.shift;
        const C h = times(g.values[v], factors.values[v]);
        of_pack.a += h;
        of_pack.b += h * normalised;
        if constexpr (kAffine) {
          grad_sums[k][v] += valid ? C(g.values[v]) : C(0);
          product_sums[k][v] += valid ? C(g.values[v]) * normalised : C(0);
        }
      }
      sums = sums + of_pack;
    });
    sums = group_reduce<Rows::kThreads>(sums, rows.group, Plus());
    if (!valid) {
      continue;
    }
    const C slope = sums.b / count * x.rstd;
    const C mean = (sums.a + x.shift * sums.b) / count;
    T* out = static_cast<T*>(kernel.in_grad) + begin;
    for_each_pack<kKept>(rows, [&](std::int64_t i, int k) {
      const Pack<T, V> g = grad.at(i, k);
      const Pack<T, V> values = in.at(i, k);
      const Pack<T, V> factors = factors_at(i);
      Pack<T, V> result{};
      if (accumulate) {
        result = load_pack<V>(out + i * V, true);
      }
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const C h = times(g.values[v], factors.values[v]);
        const C value = (h - mean - (C(values.values[v]) - x.mean) * slope) * x.rstd;
        result.values[v] = T(accumulate ? C(result.values[v]) + value : value);
      }
      *reinterpret_cast<Pack<T, V>*>(out + i * V) = result;
    });
  }
  if constexpr (kAffine) {
    if (unit * affine.rows < rows.rows) {
      for_each_pack<true>(rows, [&](std::int64_t i, int k) {
#pragma unroll
        for (int v = 0; v < V; ++v) {
          affine.grad[unit * rows.size + i * V + v] = grad_sums[k][v];
          affine.product[unit * rows.size + i * V + v] = product_sums[k][v];
        }
      });
    }
  }
}

// Sums over the rows of a matrix, for the gradients of weight and bias: the gradients, and their products with the
// normalised input. If `statistics` is null, `grad` and `in` hold partial sums of both.
template <class T, class Stored>
struct AffineSource {
  using C = ComputeType<T>;
  struct Lane {
    C grad = 0, product = 0;
  };
  using Total = TwoSums<double>;
  struct Column {};
  template <int V>
  struct Values {
    Pack<Stored, V> grad, in;
    Normaliser<C> x;
  };

  const Stored* grad;
  const Stored* in;
  const NormStatistics* statistics;
  T* weight_grad;
  T* bias_grad;
  bool add_weight, add_bias;

  __device__ Column column(std::int64_t) const { return {}; }
  template <int V>
  __device__ __forceinline__ Values<V> load(std::int64_t offset, std::int64_t row) const {
    Values<V> values;
    values.grad = load_pack<V>(grad + offset, true);
    values.in = load_pack<V>(in + offset, true);
    if (statistics != nullptr) {
      values.x = Normaliser<C>(statistics[row]);
    }
    return values;
  }
  template <int V>
  __device__ __forceinline__ void add(Lane& lane, const Values<V>& values, int i, std::int64_t, Column) const {
    const C g = values.grad.values[i];
    const C value = values.in.values[i];
    lane.grad += g;
    lane.product += statistics == nullptr ? value : g * ((value - values.x.mean) * values.x.rstd + values.x.shift);
  }
  static __device__ Total join(Total total, Lane lane) {
    return {total.a + static_cast<double>(lane.grad), total.b + static_cast<double>(lane.product)};
  }
  static __device__ Total combine(Total a, Total b) { return a + b; }
  __device__ void store(std::int64_t column, Total all) const {
    if (weight_grad != nullptr) {
      put(weight_grad[column], all.b, add_weight);
    }
    if (bias_grad != nullptr) {
      put(bias_grad[column], all.a, add_bias);
    }
  }
  static __device__ void put(T& target, double total, bool added) {
    target = T(added ? C(target) + static_cast<C>(total) : static_cast<C>(total));
  }
};

template <class T, class Stored>
void sum_columns(const Queue& queue, const LayerNormGrad& kernel, const Stored* grad, const Stored* in,
                 const NormStatistics* statistics, std::int64_t rows, std::size_t reserved) {
  constexpr int kWide = 16 / static_cast<int>(sizeof(Stored)) < 4 ? 16 / static_cast<int>(sizeof(Stored)) : 4;
  const std::int64_t down[] = {kernel.size};
  const std::int64_t across[] = {1};
  // A single column is a dense row too, but each of its elements has its own statistics, so packs are not possible.
  const std::uintptr_t alignment = kernel.size == 1 ? 1 : alignment_of(grad, in);
  reduce<kWide>(queue, LayerNormGrad::kName,
                AffineSource<T, Stored>{grad, in, statistics, static_cast<T*>(kernel.weight_grad),
                                        static_cast<T*>(kernel.bias_grad), kernel.accumulate_weight == Accumulate::yes,
                                        kernel.accumulate_bias == Accumulate::yes},
                ReductionProblem{.kept = {1, {kernel.size}},
                                 .reduced = {1, {rows}},
                                 .kept_strides = across,
                                 .reduced_strides = down,
                                 .alignment = alignment,
                                 .item = sizeof(Stored)},
                reserved);
}

template <class T, int V>
void backward(const Queue& queue, const LayerNormGrad& kernel) {
  using C = ComputeType<T>;
  bool affine_wanted = kernel.weight_grad != nullptr || kernel.bias_grad != nullptr;
  if (kernel.in_grad != nullptr && kernel.rows > 0 && kernel.size > 0) {
    const Rows rows(queue, kernel.rows, kernel.size, V);
    const bool fused = affine_wanted && rows.kept;
    // One block on each multiprocessor: the fewer units there are, the fewer sums go through memory.
    const std::int64_t fill = std::int64_t{queue.gpu().multiprocessors} * rows.units();
    Affine<C> affine{nullptr, nullptr, std::clamp<std::int64_t>((rows.rows + fill - 1) / fill, 1, kMostRows)};
    const std::int64_t units = (rows.rows + affine.rows - 1) / affine.rows;
    const auto bytes = static_cast<std::size_t>(units * rows.size) * sizeof(C);
    const std::size_t second = (bytes + 255) / 256 * 256;
    if (fused) {
      affine.grad = static_cast<C*>(queue.workspace(2 * second));
      affine.product = reinterpret_cast<C*>(reinterpret_cast<char*>(affine.grad) + second);
    }
    const auto blocks = static_cast<unsigned int>((units + rows.units() - 1) / rows.units());
    queue.launch(LayerNormGrad::kName, blocks, Rows::kThreads, 0,
                 fused       ? row_gradients<T, V, true, true>
                 : rows.kept ? row_gradients<T, V, true, false>
                             : row_gradients<T, V, false, false>,
                 kernel, rows, affine);
    if (fused) {
      sum_columns<T, C>(queue, kernel, affine.grad, affine.product, nullptr, units, 2 * second);
      affine_wanted = false;
    }
  }
  if (affine_wanted) {
    const T* grad = static_cast<const T*>(kernel.grad);
    const T* in = kernel.weight_grad == nullptr ? grad : static_cast<const T*>(kernel.in);  // may be unused
    sum_columns<T, T>(queue, kernel, grad, in, kernel.statistics, kernel.rows, 0);
  }
}

}  // namespace

void run(OnCuda, Context& context, const LayerNormGrad& kernel) {
  const Queue queue(context);
  for_floating(kernel.dtype, [&]<class T>() {
    constexpr int kWide = 16 / static_cast<int>(sizeof(T));
    const auto alignment = alignment_of(static_cast<const T*>(kernel.grad), static_cast<const T*>(kernel.in),
                                        static_cast<const T*>(kernel.weight), static_cast<const T*>(kernel.in_grad));
    kernel.size % kWide == 0 && alignment % 16 == 0 ? backward<T, kWide>(queue, kernel) : backward<T, 1>(queue, kernel);
  });
}

}  // namespace tandem::inline v0::kernels
