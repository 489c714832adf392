#pragma once

#include <mutex>
#include <optional>
#include <unordered_map>

#include <tandem/kernels/cuda/matmul/plan.h>
#include <tandem/kernels/cuda/queue.h>

// Internal: which algorithm computes which product on one GPU.

namespace tandem::inline v0::kernels::gpu {

/// Where a product's matrices are.
struct ProductArguments {
  const void* a;
  const void* b;
  void* out;
  const void* bias = nullptr;
};

/// Plans of one GPU, made once for each key. May be used by several threads.
class Planner {
 public:
  explicit Planner(const cuda::Gpu& gpu);
  /// That of the queue's GPU.
  static Planner& of(const Queue& queue);

  /// The plan for a key, or null if the library cannot fuse what it asks for. With tuning on, the first call for a key
  /// times candidates on `queue`, without changing the result's memory.
  const Plan* find(const Queue& queue, const PlanKey& key, const ProductArguments& arguments);
  /// Starts the product.
  void start(const Queue& queue, const PlanKey& key, const Plan& plan, const ProductArguments& arguments) const;

 private:
  std::optional<Plan> make(const Queue& queue, const PlanKey& key, const ProductArguments& arguments) const;

  cublasLtHandle_t handle_ = nullptr;
  std::mutex mutex_;
  std::unordered_map<PlanKey, std::optional<Plan>, PlanKeyHash> plans_;  // addresses stay while it grows
};

}  // namespace tandem::inline v0::kernels::gpu
