#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <tandem/core/cuda/ordered_mutex.h>
#include <tandem/kernels/cuda/launch/queue.h>
#include <tandem/kernels/cuda/matmul/plan.h>
#include <tandem/kernels/cuda/tuner.h>
#include <tandem/kernels/matmul.h>

// Internal: which algorithm computes which product on one GPU.

namespace tandem::inline v0::kernels::gpu {

/// Where a product's matrices are, and what belongs to them.
struct ProductArguments {
  const void* a;
  const void* b;
  void* out;
  Epilogue after{};
};

/// The one vector that the key's kernel reads or writes, or null.
inline const void* bias_or_sums(const PlanKey& key, const Epilogue& after) noexcept {
  return has_bias(key)          ? after.bias
         : has_a_sums(key)      ? after.a_sums
         : has_column_sums(key) ? after.column_sums
                                : nullptr;
}
/// The bits that the key's kernel reads or writes, or null.
inline const void* bits_of(const PlanKey& key, const Epilogue& after) noexcept {
  return has_mask(key) ? after.relu_mask_bits : writes_bits(key) ? after.relu_bits : nullptr;
}
/// The part of a product that remains after the key's kernel.
Matmul rest_of(const Matmul& product, const PlanKey& key);
/// Does in place the part of a product's end that cuBLASLt left out: + bias, max(., 0), the mask, and then bits and
/// sums. `product` names the steps that are due. With `clear` there was no sum, so the result begins at 0, or at the
/// old elements if `product` accumulates.
void finish_product(const Queue& queue, const Matmul& product, bool clear);

/// Plans of one GPU, made once for each key, and once more when tuning begins. May be used by several threads.
class Planner {
 public:
  explicit Planner(const cuda::Gpu& gpu);
  ~Planner();
  Planner(const Planner&) = delete;
  Planner& operator=(const Planner&) = delete;
  /// That of the queue's GPU.
  static Planner& of(const Queue& queue);

  /// The plan for a key, which stays valid; null if the library cannot fuse what it asks for, or is slower so. With
  /// tuning on, the first call for a key that is not within a capture measures candidates behind what `queue` has been
  /// given, and waits for them; the result's memory is not touched, that of bits and sums is.
  const Plan* find(const Queue& queue, const PlanKey& key, const ProductArguments& arguments);
  /// Starts the product by the plan for its key; false if there is none. A plan that the library refuses to run, its
  /// own choice or that of a file, is forgotten for its next choice.
  bool start(const Queue& queue, const PlanKey& key, const ProductArguments& arguments);

  /// Whether our own kernel should compute a small product, whose key is one of Fused::own. Returns nothing with tuning
  /// on, if that has not been measured.
  std::optional<bool> prefers_own(const Queue& queue, const PlanKey& key);
  /// Measures our own kernel (`own` runs it) and the library's for the same product: `plan`, which belongs to
  /// `library_key` and may be null, and the kernels that finish its work. Keeps and stores the choice.
  void compare_own(const Queue& queue, const PlanKey& key, const Matmul& product, Tuner::Run own,
                   const PlanKey& library_key, const Plan* plan);

 private:
  using AlgorithmWords = std::array<std::uint64_t, sizeof(cublasLtMatmulAlgo_t) / 8>;
  using Refused = std::vector<AlgorithmWords>;  // algorithms that the library refused to run

  struct Entry {
    std::unique_ptr<const Plan> plan;
    bool settled;         // chosen by measurement, or there is no choice
    std::uint64_t loads;  // PlanStore::loads() when it was made
    Refused refused;
  };

  // The caller holds tuning_. Measuring captures graphs, and another thread's captured step may hold the mutex of
  // captures while it asks for plans, so mutex_ is free meanwhile.
  const Plan* tune(const Queue& queue, const PlanKey& key, const ProductArguments& arguments);
  Entry make(const Queue& queue, const PlanKey& key, const ProductArguments& arguments, bool tune, Refused refused);
  const Plan* replace(Entry& entry, Entry by);
  void forget(const Queue& queue, const PlanKey& key, const ProductArguments& arguments, const Plan& plan);
  // Measures all algorithms that can compute the product, and records the fastest in the store.
  std::unique_ptr<const Plan> fastest(const Queue& queue, const PlanKey& key, const ProductArguments& arguments,
                                      const Plan& described, const std::vector<Candidate>& candidates);
  cublasStatus_t try_start(const Queue& queue, const PlanKey& key, const Plan& plan,
                           const ProductArguments& arguments) const;

  std::string gpu_name_;
  cublasLtHandle_t handle_ = nullptr;
  cuda::OrderedMutex<cuda::LockPlace::tuning> tuning_;
  cuda::OrderedMutex<cuda::LockPlace::library> mutex_;  // guards the members below
  std::unordered_map<PlanKey, Entry, PlanKeyHash> plans_;
  struct OwnChoice {
    bool own;
    bool settled;         // as in Entry
    std::uint64_t loads;  // as in Entry
  };
  std::unordered_map<PlanKey, OwnChoice, PlanKeyHash> own_choices_;
  std::vector<std::unique_ptr<const Plan>> replaced_;  // another thread may still start one
};

}  // namespace tandem::inline v0::kernels::gpu
