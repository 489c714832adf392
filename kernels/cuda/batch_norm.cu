#include <tandem/kernels/batch_norm.h>

#include <algorithm>

#include <tandem/kernels/cuda/launch/dispatch.h>
#include <tandem/kernels/cuda/patterns/batch_apply.h>
#include <tandem/kernels/cuda/patterns/reduction.h>
#include <tandem/kernels/norm_formulas.h>

// Batch norm. Floor: the forward pass in training reads the input twice (the part still in the cache costs nothing) and
// writes the output, 3 * sizeof(T) bytes per element. In evaluation it reads the input once. The statistics are a
// reduction (reduction.h); batch_apply.h does the rest.

namespace tandem::inline v0::kernels {

namespace {

// Sums like a block on the CPU. Distances from a nearby value keep their digits around a large mean, and make the
// variance of equal values exactly 0.
template <class T, class Store>
struct MomentsSource {
  using C = ComputeType<T>;
  struct Lane {
    C near = 0, sum = 0, squares = 0;  // near is the first value; the sums are of distances from it
    int count = 0;
  };
  using Total = Moments<>;
  struct Column {};
  template <int V>
  using Values = Pack<T, V>;

  const T* in;
  Store store_of_channel;  // (channel, moments)

  __device__ Column column(std::int64_t) const { return {}; }
  template <int V>
  __device__ __forceinline__ Values<V> load(std::int64_t offset, std::int64_t) const {
    return load_pack<V>(in + offset, true);
  }
  template <int V>
  __device__ __forceinline__ void add(Lane& lane, const Pack<T, V>& values, int i, std::int64_t, Column) const {
    const C value = values.values[i];
    lane.near = lane.count == 0 ? value : lane.near;
    const C distance = value - lane.near;
    lane.sum += distance;
    lane.squares += distance * distance;
    ++lane.count;
  }
  static __device__ Total join(Total total, const Lane& lane) {
    if (lane.count > 0) {
      const double count = lane.count;
      const auto sum = static_cast<double>(lane.sum);
      const double squares = std::max(static_cast<double>(lane.squares) - sum * sum / count, 0.0);
      const double mean = static_cast<double>(lane.near) + sum / count;
      total.add({count, squares != squares ? squares : mean, squares});  // an infinity has no distance from the mean
    }
    return total;
  }
  static __device__ Total combine(const Total& a, const Total& b) { return a + b; }
  __device__ void store(std::int64_t channel, const Total& all) const { store_of_channel(channel, all); }
};

struct KeepMoments {
  Moments<>* moments;

  __device__ void operator()(std::int64_t channel, const Moments<>& all) const { moments[channel] = all; }
};

// Stores a channel's statistics for a BatchNorm or BatchNormJoin, and updates the running ones.
template <class T>
struct KeepStatistics {
  using C = ComputeType<T>;

  T* running_mean;
  T* running_var;
  NormStatistics* statistics;
  double eps;
  Momentum momentum;

  template <class Kernel>
  explicit KeepStatistics(const Kernel& kernel)
      : running_mean(static_cast<T*>(kernel.running_mean)),
        running_var(static_cast<T*>(kernel.running_var)),
        statistics(kernel.statistics),
        eps(kernel.eps),
        momentum(kernel.momentum) {}

  __device__ void operator()(std::int64_t channel, const Moments<>& all) const {
    statistics[channel] = all.statistics(eps);
    if (running_mean != nullptr && all.count > 1) {
      update(running_mean[channel], all.mean);
      update(running_var[channel], all.squares / (all.count - 1));
    }
  }
  __device__ void update(T& running, double value) const {
    const auto old = static_cast<double>(static_cast<C>(running));
    running = T(static_cast<C>((1 - momentum.get()) * old + momentum.get() * value));
  }
};

template <class T>
__global__ void __launch_bounds__(batch::kThreads)
    join_moments(const Moments<>* moments, std::int64_t parts, std::int64_t channels, KeepStatistics<T> keep) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * batch::kThreads + threadIdx.x; i < channels;
       i += std::int64_t{gridDim.x} * batch::kThreads) {
    Moments<> all;
    for (std::int64_t part = 0; part < parts; ++part) {
      all.add(moments[part * channels + i]);
    }
    keep(i, all);
  }
}

template <class T>
__global__ void __launch_bounds__(batch::kThreads)
    running_statistics(const T* mean, const T* variance, NormStatistics* statistics, double eps,
                       std::int64_t channels) {
  using C = ComputeType<T>;
  for (std::int64_t i = std::int64_t{blockIdx.x} * batch::kThreads + threadIdx.x; i < channels;
       i += std::int64_t{gridDim.x} * batch::kThreads) {
    statistics[i] = {static_cast<double>(static_cast<C>(mean[i])),
                     1 / std::sqrt(static_cast<double>(static_cast<C>(variance[i])) + eps)};
  }
}

template <class T>
struct NormaliseFunctor {
  using Element = T;
  using C = ComputeType<T>;
  struct Coefficients {
    C mean, scale, shift;
  };
  template <int V>
  using Values = Pack<T, V>;

  T* out;
  const T* in;
  const T* weight;
  const T* bias;
  const NormStatistics* statistics;

  __device__ Coefficients coefficients(std::int64_t channel) const {
    const NormStatistics of_channel = statistics[channel];
    const Normaliser<C> x(of_channel);
    const C factor = weight == nullptr ? C(1) : C(weight[channel]);
    return {x.mean, static_cast<C>(of_channel.rstd * static_cast<double>(factor)),
            x.shift * factor + (bias == nullptr ? C(0) : C(bias[channel]))};
  }
  template <int V>
  __device__ __forceinline__ Values<V> load(std::int64_t offset) const {
    return load_pack<V>(in + offset, true);
  }
  template <int V>
  __device__ __forceinline__ C value(const Pack<T, V>& values, int i, const Coefficients& k) const {
    return (C(values.values[i]) - k.mean) * k.scale + k.shift;
  }
};

// Hands the moments of each channel's values to `store`. `Kernel` is a BatchNorm or BatchNormMoments.
template <class T, class Kernel, class Store>
void reduce_moments(const Queue& queue, const Kernel& kernel, const Store& store) {
  constexpr int kWide = std::min(16 / static_cast<int>(sizeof(T)), batch::kMostSums);
  const T* in = static_cast<const T*>(kernel.in);
  const batch::Channels over(kernel.outer, kernel.channels, kernel.inner, alignment_of(in), sizeof(T));
  reduce<kWide>(queue, Kernel::kName, MomentsSource<T, Store>{in, store}, over.problem);
}

template <class T>
void forward(const Queue& queue, const BatchNorm& kernel) {
  const T* in = static_cast<const T*>(kernel.in);
  if (kernel.channels == 0) {
    return;
  }
  if (kernel.training) {
    reduce_moments<T>(queue, kernel, KeepStatistics<T>(kernel));
  } else if (kernel.running_mean != nullptr) {
    queue.launch(BatchNorm::kName, queue.blocks_for(kernel.channels, batch::kThreads), batch::kThreads, 0,
                 running_statistics<T>, static_cast<const T*>(kernel.running_mean),
                 static_cast<const T*>(kernel.running_var), kernel.statistics, kernel.eps, kernel.channels);
  }
  T* out = static_cast<T*>(kernel.out);
  for_each_of_channels(queue, BatchNorm::kName,
                       NormaliseFunctor<T>{out, in, static_cast<const T*>(kernel.weight),
                                           static_cast<const T*>(kernel.bias), kernel.statistics},
                       kernel.outer, kernel.channels, kernel.inner, alignment_of(in, out));
}

}  // namespace

void run(OnCuda, Context& context, const BatchNorm& kernel) {
  const Queue queue(context);
  for_floating(kernel.dtype, [&]<class T>() { forward<T>(queue, kernel); });
}

void run(OnCuda, Context& context, const BatchNormMoments& kernel) {
  if (kernel.channels == 0) {
    return;
  }
  const Queue queue(context);
  for_floating(kernel.dtype, [&]<class T>() { reduce_moments<T>(queue, kernel, KeepMoments{kernel.moments}); });
}

void run(OnCuda, Context& context, const BatchNormJoin& kernel) {
  if (kernel.channels == 0) {
    return;
  }
  const Queue queue(context);
  for_floating(kernel.dtype, [&]<class T>() {
    queue.launch(BatchNormJoin::kName, queue.blocks_for(kernel.channels, batch::kThreads), batch::kThreads, 0,
                 join_moments<T>, kernel.moments, kernel.parts, kernel.channels, KeepStatistics<T>(kernel));
  });
}

}  // namespace tandem::inline v0::kernels
