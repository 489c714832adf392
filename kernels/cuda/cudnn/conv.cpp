#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include <tandem/core/cuda/per_gpu.h>
#include <tandem/kernels/copy.h>
#include <tandem/kernels/cuda/cudnn/conv_plan.h>
#include <tandem/kernels/cuda/cudnn/plan_cache.h>
#include <tandem/kernels/cuda/cudnn/try.h>
#include <tandem/kernels/kernel_library.h>
#include <tandem/kernels/matmul_tuning.h>

// Convolutions computed by cuDNN's graphs. cuDNN adds the bias, or adds to the destination, where one of its engines
// does so; elsewhere a kernel of ours adds to cuDNN's result. In 16 bits that result is then rounded before the sum.

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
  void* result;
};

// cuDNN has failed silently above 2^31 elements.
bool fits(const ConvShape& shape) {
  const auto is_counted = [](std::int64_t numel) { return numel > 0 && numel <= INT32_MAX; };
  return is_counted(shape.batch * shape.in_size()) && is_counted(shape.batch * shape.out_size()) &&
         is_counted(shape.weight_size()) && padding_behind(shape);
}

/// `whole`: with all of the sum that cuDNN may do itself. It never adds both a bias and the destination.
ConvKey key_of(const ConvCall& call, bool deterministic, bool whole) {
  const bool adds = call.accumulate && whole;
  const bool bias = call.bias != nullptr && !call.accumulate && whole;
  return {.kind = call.kind,
          .dtype = call.dtype,
          .tf32 = call.dtype == DType::f32 && get_float32_matmul_precision() != "highest",
          .deterministic = deterministic,
          .accumulate = adds,
          .bias = bias,
          .shape = call.shape,
          .alignment = {call.accumulate && !adds ? kMostTensorAlignment : tensor_alignment(call.result),
                        tensor_alignment(call.first), tensor_alignment(call.second),
                        bias ? tensor_alignment(call.bias) : kMostTensorAlignment}};
}

/// The images, channels and places of the result.
std::array<std::int64_t, 3> result_sizes(const ConvCall& call) {
  const ConvShape& shape = call.shape;
  switch (call.kind) {
    case ConvKind::forward: return {shape.batch, shape.groups * shape.out_channels, shape.out[0] * shape.out[1]};
    case ConvKind::in_grad: return {shape.batch, shape.groups * shape.in_channels, shape.in[0] * shape.in[1]};
    default: return {1, 1, shape.weight_size()};
  }
}

/// result += term, which has a stride for each of these.
void add_term(const Queue& queue, const ConvCall& call, const void* term, const std::array<std::int64_t, 3>& strides) {
  const auto [images, channels, places] = result_sizes(call);
  Copy copy{.in_dtype = call.dtype,
            .out_dtype = call.dtype,
            .accumulate = Accumulate::yes,
            .loop = {3, {images, channels, places}},
            .out = {call.result, {channels * places, places, 1}},
            .in = {const_cast<void*>(term), {strides[0], strides[1], strides[2]}}};
  simplify(copy.loop, {&copy.out, &copy.in});
  run(OnCuda{}, queue.context(), copy);
}

bool start(const Queue& queue, const ConvCall& call) {
  Session* const session = Session::of(queue);
  if (session == nullptr) {
    return false;
  }
  using Cache = PlanCache<ConvKey, ConvPlan>;
  static constinit cuda::PerGpu<Cache, cuda::LockPlace::library_made> caches;
  Cache& cache = caches.get(queue.gpu().index, [] { return std::make_unique<Cache>(); });
  const bool deterministic = queue.context().deterministic;
  const auto [images, channels, places] = result_sizes(call);
  const void* sum = nullptr;  // in the workspace, if our own kernel adds it to the destination
  bool adds_bias = call.bias != nullptr;
  {
    const std::lock_guard lock(session->mutex);
    const auto find = [&](const ConvKey& key) {
      return cache.find(key, queue.is_capturing(), [&] { return make_conv_plan(session->handle, key); });
    };
    ConvKey key = key_of(call, deterministic, true);
    const ConvPlan* plan = find(key);
    if (plan == nullptr && (key.accumulate || key.bias)) {
      key = key_of(call, deterministic, false);
      plan = find(key);
    }
    if (plan == nullptr) {
      return false;
    }
    constexpr std::int64_t kAligned = 256;
    const std::int64_t own = (plan->workspace + kAligned - 1) / kAligned * kAligned;
    const bool is_apart = call.accumulate && !key.accumulate;
    const std::int64_t apart =
        is_apart ? images * channels * places * static_cast<std::int64_t>(item_size(call.dtype)) : 0;
    auto* const workspace =
        own + apart > 0 ? static_cast<std::byte*>(queue.workspace(static_cast<std::size_t>(own + apart))) : nullptr;
    sum = is_apart ? workspace + own : nullptr;
    adds_bias = adds_bias && !key.bias;
    Addresses addresses{{ConvPlan::kResult, is_apart ? sum : call.result}, {1, call.first}, {2, call.second}};
    if (key.bias) {
      addresses.emplace_back(ConvPlan::kBias, call.bias);
    }
    execute(queue, *session, *plan, addresses, plan->workspace > 0 ? workspace : nullptr, call.name);
  }
  if (sum != nullptr) {
    add_term(queue, call, sum, {channels * places, places, 1});
  }
  if (adds_bias) {
    add_term(queue, call, call.bias, {0, 1, 0});
  }
  return true;
}

template <class Kernel>
bool try_conv(const Queue& queue, const Kernel& kernel, ConvKind kind, const void* first, const void* second,
              const void* bias, void* result) {
  return fits(kernel.shape) && cuda::convolution_library() == cuda::KernelLibrary::cudnn &&
         start(queue, ConvCall{kind, Kernel::kName, kernel.dtype, kernel.accumulate == Accumulate::yes, kernel.shape,
                               first, second, bias, result});
}

}  // namespace

bool try_cudnn(const Queue& queue, const Conv& kernel) {
  return try_conv(queue, kernel, ConvKind::forward, kernel.in, kernel.weight, kernel.bias, kernel.out);
}
bool try_cudnn(const Queue& queue, const ConvInGrad& kernel) {
  return try_conv(queue, kernel, ConvKind::in_grad, kernel.grad, kernel.weight, kernel.bias, kernel.in_grad);
}
bool try_cudnn(const Queue& queue, const ConvWeightGrad& kernel) {
  return try_conv(queue, kernel, ConvKind::weight_grad, kernel.grad, kernel.in, nullptr, kernel.weight_grad);
}

}  // namespace tandem::inline v0::kernels::gpu
