#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <tandem/core/cuda/ordered_mutex.h>
#include <tandem/core/export.h>
#include <tandem/kernels/cuda/matmul/plan_key.h>

// Internal: choices of matrix products, measured by this process or read from a file, and their text. Needs no CUDA
// header.

namespace tandem::inline v0::kernels::gpu {

/// The fastest plan that was found for a key.
struct PlanRecord {
  PlanKey key{};
  std::size_t version = 0;  // of cuBLASLt
  bool separate = false;    // the simpler product, and then kernels for what is missing; no algorithm
  std::size_t workspace = 0;
  int kernels = 0;
  double time_us = 0;
  std::array<std::uint64_t, 8> algorithm{};
  std::string gpu{};  // its name

  friend bool operator==(const PlanRecord&, const PlanRecord&) = default;
};

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

  mutable cuda::OrderedMutex<cuda::LockPlace::plan_store> mutex_;
  std::unordered_map<PlanKey, std::vector<PlanRecord>, PlanKeyHash> records_;  // one for each model of GPU
  std::atomic<std::uint64_t> loads_{0};
};

/// A header and a line for each record, ordered by key.
TANDEM_API std::string write_plans(std::span<const PlanRecord> records);
/// The records of such a text. Throws IoError "<path>:<line>: ..." unless all of it is as write_plans() writes it,
/// apart from the order.
TANDEM_API std::vector<PlanRecord> parse_plans(std::string_view text, const std::string& path);

/// The records of a file. Throws IoError.
std::vector<PlanRecord> read_plan_file(const std::string& path);

}  // namespace tandem::inline v0::kernels::gpu
