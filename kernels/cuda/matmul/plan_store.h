#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <tandem/kernels/cuda/matmul/plan_file.h>

// Internal: what this process has measured, and what it was given. Needs no CUDA header.

namespace tandem::inline v0::kernels::gpu {

/// All records of the process, of all GPUs of the machine and one version of cuBLASLt. For any thread.
class PlanStore {
 public:
  static PlanStore& instance();

  std::optional<PlanRecord> find(const std::string& gpu, const PlanKey& key) const;
  /// Keeps what was measured, in place of what there was.
  void add(PlanRecord record);
  /// Keeps records that came from elsewhere, where there is none yet.
  void add_loaded(std::vector<PlanRecord> records);
  std::vector<PlanRecord> all() const;
  /// Goes up when records come from elsewhere.
  std::uint64_t loads() const noexcept { return loads_.load(std::memory_order_acquire); }

 private:
  void keep(PlanRecord record, bool replace);

  mutable std::mutex mutex_;
  std::unordered_map<PlanKey, std::vector<PlanRecord>, PlanKeyHash> records_;  // one for each model of GPU
  std::atomic<std::uint64_t> loads_{0};
};

}  // namespace tandem::inline v0::kernels::gpu
