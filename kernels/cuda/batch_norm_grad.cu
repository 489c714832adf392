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

template <class T>
struct GradientSums {
  using C = ComputeType<T>;
  struct Lane {
    C grad = 0, product = 0;
  };
  using Total = NormSums;
  using Column = Normaliser<C>;
  template <int V>
  struct Values {
    Pack<T, V> grad, in;
  };

  const T* grad;
  const T* in;
  const NormStatistics* statistics;
  NormSums* sums;        // one per channel
  NormSums* handed_out;  // the same again, or null
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
    if (handed_out != nullptr) {
      handed_out[channel] = all;
    }
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
  const NormSums* sums;      // [parts, channels]
  const Moments<>* moments;  // of the parts, or null: `count` values in one part
  std::int64_t parts, channels;
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
    NormSums all;
    double values = count;
    for (std::int64_t part = 0; part < parts; ++part) {
      all.add(sums[part * channels + channel]);
      values += moments == nullptr ? 0.0 : moments[part * channels + channel].count;
    }
    return {scale, x.mean, static_cast<C>(s.rstd * all.product / values),
            static_cast<C>((all.grad + static_cast<double>(x.shift) * all.product) / values)};
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
  NormSums* sums = nullptr;
  if (kernel.weight_grad != nullptr || kernel.bias_grad != nullptr || kernel.sums != nullptr ||
      (kernel.training && kernel.parts == 0)) {
    const std::size_t bytes = static_cast<std::size_t>(kernel.channels) * sizeof(NormSums);
    sums = static_cast<NormSums*>(queue.workspace(bytes));
    const bool products =
        kernel.weight_grad != nullptr || kernel.sums != nullptr || (kernel.training && kernel.in_grad != nullptr);
    const T* values = products ? in : grad;  // unused without products
    const batch::Channels over(kernel.outer, kernel.channels, kernel.inner, alignment_of(grad, values), sizeof(T));
    reduce<kWide>(
        queue, BatchNormGrad::kName,
        GradientSums<T>{grad, values, kernel.statistics, sums, kernel.sums, static_cast<T*>(kernel.weight_grad),
                        static_cast<T*>(kernel.bias_grad), kernel.accumulate_weight == Accumulate::yes,
                        kernel.accumulate_bias == Accumulate::yes},
        over.problem, bytes);
  }
  if (kernel.in_grad != nullptr) {
    T* out = static_cast<T*>(kernel.in_grad);
    const bool is_part = kernel.parts > 0;
    for_each_of_channels(
        queue, BatchNormGrad::kName,
        InputGradient<T>{out, grad, in, static_cast<const T*>(kernel.weight), kernel.statistics,
                         is_part ? kernel.part_sums : sums, kernel.part_moments, is_part ? kernel.parts : 1,
                         kernel.channels, is_part ? 0.0 : static_cast<double>(kernel.outer * kernel.inner),
                         kernel.training, kernel.accumulate_in == Accumulate::yes},
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
