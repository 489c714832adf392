#include <tandem/kernels/cuda/matmul/planner.h>

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <utility>

#include <tandem/core/cuda.h>
#include <tandem/core/cuda/per_gpu.h>
#include <tandem/core/cuda/runtime.h>
#include <tandem/core/error.h>
#include <tandem/kernels/cuda/matmul/plan_store.h>
#include <tandem/kernels/matmul.h>
#include <tandem/kernels/matmul_tuning.h>

namespace tandem::inline v0::kernels::gpu {

namespace {

constexpr int kMostCandidates = 32;
// The first candidate is wanted, and others in case that the library refuses to run it.
constexpr int kFewCandidates = 8;

// The library will not run the plan; any other error is the GPU's. A plan of a file may also be invalid.
bool is_refusal(cublasStatus_t status, const Plan& plan) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_ARCH_MISMATCH ||
         (plan.adopted && status == CUBLAS_STATUS_INVALID_VALUE);
}

template <class Words>
bool contains(const std::vector<Words>& algorithms, const cublasLtMatmulAlgo_t& algorithm) {
  return std::find(algorithms.begin(), algorithms.end(), std::bit_cast<Words>(algorithm)) != algorithms.end();
}

// On a full GPU the library says one of these.
bool found_no_memory(cublasStatus_t status) {
  return status == CUBLAS_STATUS_ALLOC_FAILED || status == CUBLAS_STATUS_NOT_INITIALIZED;
}

// The part of an epilogue that the key's kernel does, or the part that it leaves.
Epilogue part_of(const Epilogue& whole, const PlanKey& key, bool done) {
  Epilogue part;
  part.bias = has_bias(key) == done ? whole.bias : nullptr;
  part.relu = has_relu(key) == done && whole.relu;
  part.relu_mask = has_mask(key) == done ? whole.relu_mask : nullptr;
  part.relu_bits = writes_bits(key) == done ? whole.relu_bits : nullptr;
  part.column_sums = has_column_sums(key) == done ? whole.column_sums : nullptr;
  part.a_sums = has_a_sums(key) == done ? whole.a_sums : nullptr;
  return part;
}

ResultMemory result_of(const PlanKey& key) {
  const std::int64_t last = (key.batch - 1) * key.d_step + (key.m - 1) * key.ldd + key.n - 1;
  return {static_cast<std::size_t>(last + 1) * item_size(static_cast<DType>(key.type)), key.d_align};
}

// The product of a key, apart from its factors, at `out`.
Matmul product_of(const PlanKey& key, const ProductArguments& arguments, void* out) {
  Matmul product{};
  product.dtype = static_cast<DType>(key.type);
  product.m = key.m;
  product.n = key.n;
  product.k = key.k;
  product.a = key.a_transposed != 0 ? Matrix{arguments.a, 1, key.lda} : Matrix{arguments.a, key.lda, 1};
  product.out = out;
  product.out_stride = key.ldd;
  product.after = part_of(arguments.after, key, true);
  product.after.relu = has_relu(key);
  return product;
}

}  // namespace

Matmul rest_of(const Matmul& product, const PlanKey& key) {
  Matmul rest = product;
  rest.after = part_of(product.after, key, false);
  return rest;
}

Planner::Planner(const cuda::Gpu& gpu) : gpu_name_(cuda::device_name(gpu.index)) {
  const cuda::GpuScope scope(gpu.index);
  require(cuda::with_room(gpu.index, [&] { return cublasLtCreate(&handle_); }, found_no_memory), "cublasLtCreate");
}

Planner::~Planner() { cublasLtDestroy(handle_); }

Planner& Planner::of(const Queue& queue) {
  static constinit cuda::PerGpu<Planner, cuda::LockPlace::library_made> planners;
  return planners.get(queue.gpu().index, [&] { return std::make_unique<Planner>(queue.gpu()); });
}

const Plan* Planner::find(const Queue& queue, const PlanKey& key, const ProductArguments& arguments) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = plans_.find(key);
    const Entry* known = found != plans_.end() ? &found->second : nullptr;
    if (known != nullptr && known->settled) [[likely]] {
      return known->plan.get();
    }
    if (!cuda::kernel_tuning() || queue.is_capturing()) {
      if (known != nullptr && known->loads == PlanStore::instance().loads()) {
        return known->plan.get();
      }
      Entry made = make(queue, key, arguments, false, known != nullptr ? known->refused : Refused());
      return replace(plans_[key], std::move(made));
    }
  }
  const std::lock_guard one_at_a_time(tuning_);
  return tune(queue, key, arguments);
}

const Plan* Planner::tune(const Queue& queue, const PlanKey& key, const ProductArguments& arguments) {
  Refused refused;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = plans_.find(key); found != plans_.end()) {
      if (found->second.settled) {
        return found->second.plan.get();
      }
      refused = found->second.refused;
    }
  }
  Entry made = make(queue, key, arguments, true, std::move(refused));
  const std::lock_guard lock(mutex_);
  return replace(plans_[key], std::move(made));
}

const Plan* Planner::replace(Entry& entry, Entry by) {
  if (entry.plan != nullptr) {
    replaced_.push_back(std::move(entry.plan));
  }
  entry = std::move(by);
  return entry.plan.get();
}

void Planner::forget(const Queue& queue, const PlanKey& key, const ProductArguments& arguments, const Plan& plan) {
  const std::lock_guard lock(mutex_);
  if (Entry& entry = plans_.at(key); entry.plan.get() == &plan) {  // or another thread was first
    Refused refused = entry.refused;
    refused.push_back(std::bit_cast<AlgorithmWords>(plan.algorithm));
    replace(entry, make(queue, key, arguments, false, std::move(refused)));
  }
}

Planner::Entry Planner::make(const Queue& queue, const PlanKey& key, const ProductArguments& arguments, bool tune,
                             Refused refused) {
  Entry entry{.plan = nullptr, .settled = true, .loads = PlanStore::instance().loads(), .refused = std::move(refused)};
  Plan plan = describe(key);
  if (const auto record = PlanStore::instance().find(gpu_name_, key)) {
    if (record->separate) {
      return entry;
    }
    const auto algorithm = std::bit_cast<cublasLtMatmulAlgo_t>(record->algorithm);
    if (!contains(entry.refused, algorithm) && adopt(handle_, key, plan, algorithm)) {
      plan.kernels = record->kernels;
      plan.time_us = record->time_us;
      entry.plan = std::make_unique<const Plan>(plan);
      return entry;
    }
  }
  std::vector<Candidate> candidates = candidates_for(handle_, key, plan, tune ? kMostCandidates : kFewCandidates);
  std::erase_if(candidates, [&](const Candidate& candidate) { return contains(entry.refused, candidate.algorithm); });
  if (candidates.empty()) {
    return entry;
  }
  plan.algorithm = candidates.front().algorithm;
  plan.workspace = candidates.front().workspace;
  if (tune) {
    try {
      entry.plan = fastest(queue, key, arguments, plan, candidates);
      return entry;
    } catch (const OutOfMemory&) {  // the GPU is full: cuBLASLt's choice stays
    }
  }
  entry.plan = std::make_unique<const Plan>(plan);
  entry.settled = tune;
  return entry;
}

std::unique_ptr<const Plan> Planner::fastest(const Queue& queue, const PlanKey& key, const ProductArguments& arguments,
                                             const Plan& described, const std::vector<Candidate>& candidates) {
  PlanKey less = key;
  const Plan* alone = nullptr;
  while (alone == nullptr && fused_of(less) != Fused::nothing) {
    less = simpler(less);
    alone = tune(queue, less, arguments);
  }
  std::size_t workspace = alone != nullptr ? alone->workspace : 0;
  for (const Candidate& candidate : candidates) {
    workspace = std::max(workspace, candidate.workspace);
  }
  Tuner tuner(queue, result_of(key), workspace);
  auto best = std::make_unique<Plan>(described);
  const auto measure = [&](const PlanKey& what, const Plan& plan) {
    return tuner.measure([&](const Queue& own, void* out) {
      ProductArguments there = arguments;
      there.out = out;
      if (try_start(own, what, plan, there) != CUBLAS_STATUS_SUCCESS) {
        return false;
      }
      finish_product(own, rest_of(product_of(key, arguments, out), what), false);
      return true;
    });
  };
  for (const Candidate& candidate : candidates) {
    Plan plan = described;
    plan.algorithm = candidate.algorithm;
    plan.workspace = candidate.workspace;
    const std::optional<Measured> measured = measure(key, plan);
    if (measured && (best->kernels == 0 || measured->time_us < best->time_us)) {
      plan.kernels = measured->kernels;
      plan.time_us = measured->time_us;
      *best = plan;
    }
  }
  PlanRecord record{.key = key, .version = cublasLtGetVersion(), .gpu = gpu_name_};
  const std::optional<Measured> separate = alone != nullptr ? measure(less, *alone) : std::optional<Measured>();
  if (separate && (best->kernels == 0 || separate->time_us < best->time_us)) {
    record.separate = true;
    record.kernels = separate->kernels;
    record.time_us = separate->time_us;
    PlanStore::instance().add(std::move(record));
    return nullptr;
  }
  if (best->kernels > 0) {
    record.workspace = best->workspace;
    record.kernels = best->kernels;
    record.time_us = best->time_us;
    record.algorithm = std::bit_cast<std::array<std::uint64_t, 8>>(best->algorithm);
    PlanStore::instance().add(std::move(record));
  }
  return best;
}

bool Planner::start(const Queue& queue, const PlanKey& key, const ProductArguments& arguments) {
  while (const Plan* plan = find(queue, key, arguments)) {
    const cublasStatus_t status = try_start(queue, key, *plan, arguments);
    if (!is_refusal(status, *plan)) {
      require(status, "cublasLtMatmul");
      return true;
    }
    forget(queue, key, arguments, *plan);
  }
  return false;
}

std::optional<bool> Planner::prefers_own(const Queue& queue, const PlanKey& key) {
  const std::lock_guard lock(mutex_);
  auto found = own_choices_.find(key);
  const std::uint64_t loads = PlanStore::instance().loads();
  if (found == own_choices_.end() || (!found->second.settled && found->second.loads != loads)) {
    const auto record = PlanStore::instance().find(gpu_name_, key);
    const OwnChoice choice{.own = !record || !record->separate, .settled = record.has_value(), .loads = loads};
    found = own_choices_.insert_or_assign(key, choice).first;
  }
  if (!found->second.settled && cuda::kernel_tuning() && !queue.is_capturing()) {
    return std::nullopt;
  }
  return found->second.own;
}

void Planner::compare_own(const Queue& queue, const PlanKey& key, const Matmul& product, Tuner::Run own,
                          const PlanKey& library_key, const Plan* plan) {
  const std::lock_guard one_at_a_time(tuning_);
  OwnChoice choice{.own = true, .settled = true, .loads = 0};
  // Asks for no plan, which would need this thread's mutex.
  const auto by_library = [&](const Queue& on, void* out) {
    Matmul there = product;
    there.out = out;
    if (try_start(on, library_key, *plan, {there.a.data, there.b.data, out, there.after}) != CUBLAS_STATUS_SUCCESS) {
      return false;
    }
    finish_product(on, rest_of(there, library_key), false);
    return true;
  };
  try {
    Tuner tuner(queue, result_of(key), plan != nullptr ? plan->workspace : 0);
    const std::optional<Measured> ours = tuner.measure(own);
    const std::optional<Measured> theirs = plan != nullptr ? tuner.measure(by_library) : std::optional<Measured>();
    if (ours && theirs) {
      choice.own = ours->time_us <= theirs->time_us;
      const Measured& best = choice.own ? *ours : *theirs;
      PlanStore::instance().add({.key = key,
                                 .version = cublasLtGetVersion(),
                                 .separate = !choice.own,
                                 .kernels = best.kernels,
                                 .time_us = best.time_us,
                                 .gpu = gpu_name_});
    }
  } catch (const OutOfMemory&) {  // the GPU is full: our own kernel needs no memory
  }
  const std::lock_guard lock(mutex_);
  own_choices_.insert_or_assign(key, choice);
}

cublasStatus_t Planner::try_start(const Queue& queue, const PlanKey& key, const Plan& plan,
                                  const ProductArguments& arguments) const {
  Plan own = plan;  // threads have addresses of their own
  set_addresses(own.operation, key, bias_or_sums(key, arguments.after), bits_of(key, arguments.after));
  const bool wide = static_cast<DType>(key.type) == DType::f64;
  const double one = 1;
  const double zero = 0;
  const float one_f32 = 1;
  const float zero_f32 = 0;
  const void* alpha = wide ? static_cast<const void*>(&one) : &one_f32;
  const void* none = wide ? static_cast<const void*>(&zero) : &zero_f32;
  void* workspace = plan.workspace > 0 ? queue.workspace(plan.workspace) : nullptr;
  cuda::note_launch(Matmul::kName);
  return cuda::with_room(
      queue.gpu().index,
      [&] {
        return cublasLtMatmul(handle_, &own.operation, alpha, arguments.b, &own.first, arguments.a, &own.second,
                              key.accumulate != 0 ? alpha : none, arguments.out, &own.result, arguments.out,
                              &own.result, &own.algorithm, workspace, plan.workspace, queue.stream());
      },
      found_no_memory);
}

}  // namespace tandem::inline v0::kernels::gpu
