#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <tandem/core/cuda/per_gpu.h>
#include <tandem/core/error.h>
#include <tandem/kernels/copy.h>
#include <tandem/kernels/cuda/cudnn/conv_plan.h>
#include <tandem/kernels/cuda/cudnn/plan_cache.h>
#include <tandem/kernels/cuda/cudnn/try.h>
#include <tandem/kernels/cuda/tuner.h>
#include <tandem/kernels/kernel_library.h>
#include <tandem/kernels/matmul_tuning.h>
#include <tandem/kernels/pointwise.h>

// Convolutions computed by cuDNN's graphs. cuDNN adds the bias and does the ReLU, or adds to the destination, where one
// of its engines does so; elsewhere kernels of ours do that to cuDNN's result. In 16 bits, that result is rounded
// before they read it.

namespace tandem::inline v0::kernels::gpu {

namespace {

using namespace cudnn;

/// A call of one of the three kernels.
struct ConvCall {
  ConvKind kind;
  const char* name;
  DType dtype;
  bool accumulate;
  const ConvShape& shape;
  const void* first;
  const void* second;
  const void* bias;
  bool relu;
  void* result;
  MemoryFormat format;
};

// cuDNN has failed silently above 2^31 elements.
bool fits(const ConvShape& shape) {
  const auto is_counted = [](std::int64_t numel) { return numel > 0 && numel <= INT32_MAX; };
  return is_counted(shape.batch * shape.in_size()) && is_counted(shape.batch * shape.out_size()) &&
         is_counted(shape.weight_size()) && padding_behind(shape);
}

/// How much of what follows the products is left to cuDNN, most of it first. If cuDNN adds to the destination, it does
/// nothing else.
enum class Left : std::uint8_t { all, without_relu, nothing };

/// cuDNN does not document what its ReLU makes of NaN. Where its products are exact, ours is taken, which keeps NaN.
bool leaves_relu(const ConvCall& call, bool tf32) {
  return call.relu && !call.accumulate && call.dtype != DType::f64 && (call.dtype != DType::f32 || tf32);
}

ConvKey key_of(const ConvCall& call, bool deterministic, Left left) {
  const bool tf32 = call.dtype == DType::f32 && get_float32_matmul_precision() != "highest";
  const bool adds = call.accumulate && left != Left::nothing;
  const bool bias = call.bias != nullptr && !call.accumulate && left != Left::nothing;
  return {.kind = call.kind,
          .dtype = call.dtype,
          .tf32 = tf32,
          .deterministic = deterministic,
          .accumulate = adds,
          .bias = bias,
          .relu = left == Left::all && leaves_relu(call, tf32),
          .format = call.format,
          .shape = call.shape,
          .alignment = {call.accumulate && !adds ? kMostTensorAlignment : tensor_alignment(call.result),
                        tensor_alignment(call.first), tensor_alignment(call.second),
                        bias ? tensor_alignment(call.bias) : kMostTensorAlignment}};
}

/// The keys under which a call's plans are kept, those that leave most to cuDNN first.
struct Keys {
  std::array<ConvKey, 3> keys;
  std::size_t count = 0;

  Keys(const ConvCall& call, bool deterministic) {
    for (const Left left : {Left::all, Left::without_relu, Left::nothing}) {
      const ConvKey key = key_of(call, deterministic, left);
      if (count == 0 || key != keys[count - 1]) {
        keys[count++] = key;
      }
    }
  }
  const ConvKey* begin() const { return keys.data(); }
  const ConvKey* end() const { return keys.data() + count; }
};

/// The images, channels and places of the result.
std::array<std::int64_t, 3> result_sizes(const ConvCall& call) {
  const ConvShape& shape = call.shape;
  switch (call.kind) {
    case ConvKind::forward: return {shape.batch, shape.groups * shape.out_channels, shape.out[0] * shape.out[1]};
    case ConvKind::in_grad: return {shape.batch, shape.groups * shape.in_channels, shape.in[0] * shape.in[1]};
    default: return {1, 1, shape.weight_size()};
  }
}

std::int64_t bytes_of_result(const ConvCall& call) {
  const auto [images, channels, places] = result_sizes(call);
  return images * channels * places * static_cast<std::int64_t>(item_size(call.dtype));
}

/// result += term, which is one for each channel of the result, or else laid out like it.
void add_term(const Queue& queue, const ConvCall& call, const void* term, bool per_channel) {
  const auto [images, channels, places] = result_sizes(call);
  const bool channels_last = call.format == MemoryFormat::channels_last;
  const std::int64_t inner = channels_last ? 1 : places;
  Copy copy{.in_dtype = call.dtype,
            .out_dtype = call.dtype,
            .accumulate = Accumulate::yes,
            .loop = {3, {channels_last ? images * places : images, channels, inner}},
            .out = {call.result, {channels * inner, inner, 1}},
            .in = {const_cast<void*>(term), {0, 1, 0}}};
  if (!per_channel) {
    std::copy_n(copy.out.strides, 3, copy.in.strides);
  }
  simplify(copy.loop, {&copy.out, &copy.in});
  run(OnCuda{}, queue.context(), copy);
}

using Cache = PlanCache<ConvKey, cudnn::Plan>;

Cache& cache_of(const Queue& queue) {
  static constinit cuda::PerGpu<Cache, cuda::LockPlace::library_made> caches;
  return caches.get(queue.gpu().index, [] { return std::make_unique<Cache>(); });
}

/// A way to compute a call: by a plan, which does what its key says, and by kernels of ours, which do the rest.
class Way {
 public:
  Way(const ConvCall& call, const ConvKey& key, const cudnn::Plan& plan)
      : call_(call),
        plan_(plan),
        biased_(key.bias),
        rectified_(key.relu),
        apart_(call.accumulate && !key.accumulate ? bytes_of_result(call) : 0),
        own_((plan.workspace + kAligned - 1) / kAligned * kAligned) {}

  std::size_t workspace() const { return static_cast<std::size_t>(own_ + apart_); }

  /// Starts the plan, or returns false if cuDNN refuses to. The caller holds the session's mutex, and then calls
  /// finish().
  bool start(const Queue& queue, const Session& session) {
    auto* const workspace =
        this->workspace() > 0 ? static_cast<std::byte*>(queue.workspace(this->workspace())) : nullptr;
    sum_ = apart_ > 0 ? workspace + own_ : nullptr;
    Addresses addresses{{kConvResult, sum_ != nullptr ? sum_ : call_.result}, {1, call_.first}, {2, call_.second}};
    if (biased_) {
      addresses.emplace_back(kConvBias, call_.bias);
    }
    return execute(queue, session, plan_, addresses, plan_.workspace > 0 ? workspace : nullptr, call_.name);
  }
  void finish(const Queue& queue) const {
    if (sum_ != nullptr) {
      add_term(queue, call_, sum_, false);
    }
    if (call_.bias != nullptr && !biased_) {
      add_term(queue, call_, call_.bias, true);
    }
    if (call_.relu && !rectified_) {
      const auto [images, channels, places] = result_sizes(call_);
      const Operand result{call_.result, {1}};
      run(OnCuda{}, queue.context(),
          Pointwise{.op = PointwiseOp::relu,
                    .dtype = call_.dtype,
                    .loop = {1, {images * channels * places}},
                    .out = result,
                    .in = {result, result, result}});
    }
  }

 private:
  static constexpr std::int64_t kAligned = 256;

  const ConvCall& call_;
  const cudnn::Plan& plan_;
  bool biased_;
  bool rectified_;
  std::int64_t apart_;         // bytes of a sum that a kernel of ours adds to the destination
  std::int64_t own_;           // bytes of the plan's own workspace
  const void* sum_ = nullptr;  // that sum, behind it
};

/// Settles the keys on the fastest plan. Measures up to kMostEngines of each key; the caller does not hold the
/// session's mutex.
void choose_by_measuring(const Queue& queue, Session& session, Cache& cache, const ConvCall& call, const Keys& keys) {
  constexpr std::size_t kMostEngines = 5;
  static constinit cuda::OrderedMutex<cuda::LockPlace::tuning> one_at_a_time;
  const std::lock_guard tuning(one_at_a_time);
  struct Candidate {
    const ConvKey* key;
    cudnn::Plan plan;
  };
  std::vector<Candidate> candidates;
  std::size_t workspace = 0;
  {
    const std::lock_guard lock(session.mutex);
    if (cache.is_settled(*keys.begin())) {  // by another thread
      return;
    }
    for (const ConvKey& key : keys) {
      for (cudnn::Plan& plan : make_conv_plans(session.handle, key, kMostEngines)) {
        workspace = std::max(workspace, Way(call, key, plan).workspace());
        candidates.push_back({&key, std::move(plan)});
      }
    }
  }
  Candidate* best = candidates.empty() ? nullptr : &candidates.front();
  try {
    std::optional<double> least;
    std::optional<Tuner> tuner;
    if (candidates.size() > 1) {
      constexpr std::int64_t kMost = 256;
      const ResultMemory result{static_cast<std::size_t>(bytes_of_result(call)), tensor_alignment(call.result, kMost)};
      tuner.emplace(queue, result, workspace);
    }
    for (Candidate& candidate : candidates) {
      const auto run = [&](const Queue& own, void* out) {
        ConvCall there = call;
        there.result = out;
        Way way(there, *candidate.key, candidate.plan);
        {
          const std::lock_guard lock(session.mutex);
          if (!way.start(own, session)) {
            return false;
          }
        }
        way.finish(own);
        return true;
      };
      try {
        const std::optional<double> time = tuner ? tuner->time_us(run) : std::nullopt;
        if (time && (!least || *time < *least)) {
          least = time;
          best = &candidate;
        }
      } catch (const DeviceError&) {  // that engine fails; if the GPU does, the call itself will
      }
    }
  } catch (const OutOfMemory&) {  // the GPU is full: cuDNN's choice stays
  }
  const std::lock_guard lock(session.mutex);
  for (const ConvKey& key : keys) {
    if (best != nullptr && best->key == &key) {
      cache.settle(key, std::move(best->plan));
      return;  // start() does not ask for later keys
    }
    cache.settle(key, std::nullopt);
  }
}

bool start(const Queue& queue, const ConvCall& call) {
  Session* const session = Session::of(queue);
  if (session == nullptr) {
    return false;
  }
  Cache& cache = cache_of(queue);
  const bool is_capturing = queue.is_capturing();
  const Keys keys(call, queue.context().deterministic);
  std::unique_lock lock(session->mutex);
  if (cuda::kernel_tuning() && !is_capturing && !cache.is_settled(*keys.begin())) {
    lock.unlock();
    choose_by_measuring(queue, *session, cache, call, keys);
    lock.lock();
  }
  for (const ConvKey& key : keys) {
    const auto make = [&]() -> std::optional<cudnn::Plan> {
      std::vector<cudnn::Plan> plans = make_conv_plans(session->handle, key, 1);
      return plans.empty() ? std::nullopt : std::optional(std::move(plans.front()));
    };
    const cudnn::Plan* const plan = cache.find(key, is_capturing, make);
    if (plan == nullptr) {
      continue;
    }
    Way way(call, key, *plan);
    if (way.start(queue, *session)) {
      lock.unlock();
      way.finish(queue);
      return true;
    }
  }
  return false;
}

template <class Kernel>
bool try_conv(const Queue& queue, const Kernel& kernel, ConvKind kind, const void* first, const void* second,
              const void* bias, void* result, bool relu = false) {
  return fits(kernel.shape) && cuda::convolution_library() == cuda::KernelLibrary::cudnn &&
         start(queue, ConvCall{kind, Kernel::kName, kernel.dtype, kernel.accumulate == Accumulate::yes, kernel.shape,
                               first, second, bias, relu, result, kernel.format});
}

}  // namespace

bool try_cudnn(const Queue& queue, const Conv& kernel) {
  return try_conv(queue, kernel, ConvKind::forward, kernel.in, kernel.weight, kernel.bias, kernel.out, kernel.relu);
}
bool try_cudnn(const Queue& queue, const ConvInGrad& kernel) {
  return try_conv(queue, kernel, ConvKind::in_grad, kernel.grad, kernel.weight, kernel.bias, kernel.in_grad);
}
bool try_cudnn(const Queue& queue, const ConvWeightGrad& kernel) {
  return try_conv(queue, kernel, ConvKind::weight_grad, kernel.grad, kernel.in, nullptr, kernel.weight_grad);
}

}  // namespace tandem::inline v0::kernels::gpu
