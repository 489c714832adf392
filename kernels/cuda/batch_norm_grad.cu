#include <tandem/kernels/batch_norm.h>

#include <algorithm>

#include <tandem/kernels/cuda/launch/dispatch.h>
#include <tandem/kernels/cuda/patterns/batch_apply.h>
#include <tandem/kernels/cuda/patterns/reduction.h>
#include <tandem/kernels/norm_formulas.h>

// Batch norm's backward pass. Floor: it reads gradient and input twice (the parts still in the cache cost nothing) and
// writes the input's gradient, 5 * sizeof(T) bytes per element. The sums are a reduction (reduction.h); batch_apply.h
// does the rest.

namespace tandem::inline v0::kernels {

namespace {

struct Sums {
  double grad = 0;
  double product = 0;  // sum of gradient * normalised input
};

template <class T>
struct GradientSums {
  using C = ComputeType<T>;
  struct Lane {
    C grad = 0, product = 0;
  };
  using Total = Sums;
  using Column = Normaliser<C>;
  template <int V>
  struct Values {
    Pack<T, V> grad, in;
  };

  const T* grad;
  const T* in;
  const NormStatistics* statistics;
  Sums* sums;  // one per channel
  T* weight_grad;
  T* bias_grad;
  bool add_weight, add_bias;

  __device__ Column column(std::int64_t channel) const { return Column(statistics[channel]); }
  template <int V>
  __device__ __forceinline__ Values<V> load(std::int64_t offset, std::int64_t) const {
    return {load_pack<V>(grad + offset, true), load_pack<V>(in + offset, true)};
  }
  template <int V>
  __device__ __forceinline__ void add(Lane& lane, const Values<V>& values, int i, std::int64_t, const Column& x) const {
    const C g = values.grad.values[i];
    lane.grad += g;
    lane.product += g * ((C(values.in.values[i]) - x.mean) * x.rstd + x.shift);
  }
  static __device__ Total join(const Total& total, const Lane& lane) {
    return {total.grad + static_cast<double>(lane.grad), total.product + static_cast<double>(lane.product)};
  }
  static __device__ Total combine(const Total& a, const Total& b) { return {a.grad + b.grad, a.product + b.product}; }
  __device__ void store(std::int64_t channel, const Total& all) const {
    sums[channel] = all;
    if (weight_grad != nullptr) {
      put(weight_grad[channel], all.product, add_weight);
    }
    if (bias_grad != nullptr) {
      put(bias_grad[channel], all.grad, add_bias);
    }
  }
  static __device__ void put(T& target, double total, bool added) {
    target = T(added ? C(target) + static_cast<C>(total) : static_cast<C>(total));
  }
};

template <class T>
struct InputGradient {
  using Element = T;
  using C = ComputeType<T>;
  struct Coefficients {
    C scale, mean, slope, offset;
  };
  template <int V>
  struct Values {
    Pack<T, V> grad, in, before;
  };

  T* out;
  const T* grad;
  const T* in;
  const T* weight;
  const NormStatistics* statistics;
  const Sums* sums;
  double count;
  bool training, accumulate;

  // mean(grad) + x * mean(grad * x) = offset + (in - mean) * slope
  __device__ Coefficients coefficients(std::int64_t channel) const {
    const NormStatistics s = statistics[channel];
    const double factor = weight == nullptr ? 1.0 : static_cast<double>(C(weight[channel]));
    const C scale = static_cast<C>(s.rstd * factor);
    if (!training) {
      return {scale, C(0), C(0), C(0)};
    }
    const Normaliser<C> x(s);
    const Sums of_channel = sums[channel];
    return {scale, x.mean, static_cast<C>(s.rstd * of_channel.product / count),
            static_cast<C>((of_channel.grad + static_cast<double>(x.shift) * of_channel.product) / count)};
  }
  template <int V>
  __device__ __forceinline__ Values<V> load(std::int64_t offset) const {
    Values<V> values;
    values.grad = load_pack<V>(grad + offset, true);
    if (training) {
      values.in = load_pack<V>(in + offset, true);
    }
    if (accumulate) {
      values.before = load_pack<V>(out + offset, true);
    }
    return values;
  }
  template <int V>
  __device__ __forceinline__ C value(const Values<V>& values, int i, const Coefficients& k) const {
    const C grad_here = values.grad.values[i];
    const C result =
        training ? (grad_here - k.offset - (C(values.in.values[i]) - k.mean) * k.slope) * k.scale : grad_here * k.scale;
    return accumulate ? C(values.before.values[i]) + result : result;
  }
};

template <class T>
void backward(const Queue& queue, const BatchNormGrad& kernel) {
  constexpr int kWide = std::min(16 / static_cast<int>(sizeof(T)), batch::kMostSums);
  const T* grad = static_cast<const T*>(kernel.grad);
  const T* in = static_cast<const T*>(kernel.in);
  if (kernel.channels == 0) {
    return;
  }
  Sums* sums = nullptr;
  if (kernel.weight_grad != nullptr || kernel.bias_grad != nullptr || kernel.training) {
    const std::size_t bytes = static_cast<std::size_t>(kernel.channels) * sizeof(Sums);
    sums = static_cast<Sums*>(queue.workspace(bytes));
    const bool products = kernel.weight_grad != nullptr || (kernel.training && kernel.in_grad != nullptr);
    const T* values = products ? in : grad;  // unused without products
    const batch::Channels over(kernel.outer, kernel.channels, kernel.inner, alignment_of(grad, values), sizeof(T));
    reduce<kWide>(queue, BatchNormGrad::kName,
                  GradientSums<T>{grad, values, kernel.statistics, sums, static_cast<T*>(kernel.weight_grad),
                                  static_cast<T*>(kernel.bias_grad), kernel.accumulate_weight == Accumulate::yes,
                                  kernel.accumulate_bias == Accumulate::yes},
                  over.problem, bytes);
  }
  if (kernel.in_grad != nullptr) {
    T* out = static_cast<T*>(kernel.in_grad);
    for_each_of_channels(queue, BatchNormGrad::kName,
                         InputGradient<T>{out, grad, in, static_cast<const T*>(kernel.weight), kernel.statistics, sums,
                                          static_cast<double>(kernel.outer * kernel.inner), kernel.training,
                                          kernel.accumulate_in == Accumulate::yes},
                         kernel.outer, kernel.channels, kernel.inner,
                         kernel.training ? alignment_of(grad, in, out) : alignment_of(grad, out));
  }
}

}  // namespace

void run(OnCuda, Context& context, const BatchNormGrad& kernel) {
  const Queue queue(context);
  for_floating(kernel.dtype, [&]<class T>() { backward<T>(queue, kernel); });
}

}  // namespace tandem::inline v0::kernels
