#include <tandem/kernels/cuda/matmul/planner.h>

#include <array>
#include <memory>

#include <tandem/core/cuda/runtime.h>

namespace tandem::inline v0::kernels::gpu {

Planner::Planner(const cuda::Gpu& gpu) {
  const cuda::GpuScope scope(gpu.index);
  require(cublasLtCreate(&handle_), "cublasLtCreate");
}

Planner& Planner::of(const Queue& queue) {
  constexpr std::size_t kMostGpus = 64;
  struct Slot {
    std::once_flag once;
    std::unique_ptr<Planner> planner;
  };
  static auto* slots = new std::array<Slot, kMostGpus>;  // outlives every thread
  Slot& slot = (*slots)[static_cast<std::size_t>(queue.gpu().index)];
  std::call_once(slot.once, [&] { slot.planner = std::make_unique<Planner>(queue.gpu()); });
  return *slot.planner;
}

const Plan* Planner::find(const Queue& queue, const PlanKey& key, const ProductArguments& arguments) {
  const std::lock_guard lock(mutex_);
  auto found = plans_.find(key);
  if (found == plans_.end()) {
    found = plans_.emplace(key, make(queue, key, arguments)).first;
  }
  return found->second ? &*found->second : nullptr;
}

std::optional<Plan> Planner::make(const Queue&, const PlanKey& key, const ProductArguments&) const {
  Plan plan = describe(key);
  Candidate candidate;
  if (candidates_for(handle_, key, plan, &candidate, 1) == 0) {
    return std::nullopt;
  }
  plan.algorithm = candidate.algorithm;
  plan.workspace = candidate.workspace;
  return plan;
}

void Planner::start(const Queue& queue, const PlanKey& key, const Plan& plan, const ProductArguments& arguments) const {
  Plan own = plan;  // threads have addresses of their own
  if (arguments.bias != nullptr) {
    require(cublasLtMatmulDescSetAttribute(&own.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &arguments.bias,
                                           sizeof(arguments.bias)),
            "cublasLtMatmulDescSetAttribute");
  }
  const bool wide = static_cast<DType>(key.type) == DType::f64;
  const double one = 1;
  const double zero = 0;
  const float one_f32 = 1;
  const float zero_f32 = 0;
  const void* alpha = wide ? static_cast<const void*>(&one) : &one_f32;
  const void* none = wide ? static_cast<const void*>(&zero) : &zero_f32;
  void* workspace = plan.workspace > 0 ? queue.workspace(plan.workspace) : nullptr;
  cuda::note_launch(Matmul::kName);
  require(cublasLtMatmul(handle_, &own.operation, alpha, arguments.b, &own.first, arguments.a, &own.second,
                         key.accumulate != 0 ? alpha : none, arguments.out, &own.result, arguments.out, &own.result,
                         &own.algorithm, workspace, plan.workspace, queue.stream()),
          "cublasLtMatmul");
}

}  // namespace tandem::inline v0::kernels::gpu
