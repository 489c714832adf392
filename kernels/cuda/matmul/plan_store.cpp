#include <tandem/kernels/cuda/matmul/plan_store.h>

#include <algorithm>
#include <utility>

namespace tandem::inline v0::kernels::gpu {

PlanStore& PlanStore::instance() {
  static auto* store = new PlanStore;  // outlives every thread
  return *store;
}

std::optional<PlanRecord> PlanStore::find(const std::string& gpu, const PlanKey& key) const {
  const std::lock_guard lock(mutex_);
  if (const auto found = records_.find(key); found != records_.end()) {
    for (const PlanRecord& record : found->second) {
      if (record.gpu == gpu) {
        return record;
      }
    }
  }
  return std::nullopt;
}

void PlanStore::keep(PlanRecord record, bool replace) {
  std::vector<PlanRecord>& records = records_[record.key];
  const auto old =
      std::find_if(records.begin(), records.end(), [&](const PlanRecord& other) { return other.gpu == record.gpu; });
  if (old == records.end()) {
    records.push_back(std::move(record));
  } else if (replace) {
    *old = std::move(record);
  }
}

void PlanStore::add(PlanRecord record) {
  const std::lock_guard lock(mutex_);
  keep(std::move(record), true);
}

void PlanStore::add_loaded(std::vector<PlanRecord> records) {
  const std::lock_guard lock(mutex_);
  for (PlanRecord& record : records) {
    keep(std::move(record), false);
  }
  loads_.fetch_add(1, std::memory_order_release);
}

std::vector<PlanRecord> PlanStore::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<PlanRecord> all;
  for (const auto& [key, records] : records_) {
    all.insert(all.end(), records.begin(), records.end());
  }
  return all;
}

}  // namespace tandem::inline v0::kernels::gpu
