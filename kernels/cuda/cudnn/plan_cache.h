#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

// The plans that a process keeps for one GPU.

namespace tandem::inline v0::kernels::gpu::cudnn {

/// Plans by key, and the keys for which cuDNN has no plan. Calls are serial: the caller holds the session's mutex.
template <class Key, class Plan>
class PlanCache {
 public:
  static constexpr std::size_t kMost = 512;

  /// Returns the plan for a key, made at first use: make() returns a std::optional<Plan>. Returns null if there is
  /// none, or if it would have to be made while work is being captured. The pointer is valid until the next call.
  /// Beyond kMost keys, the one that was not used for longest is dropped; a captured graph may execute a plan again at
  /// any time, so those that were found during a capture stay and do not count.
  template <class Make>
  const Plan* find(const Key& key, bool is_capturing, Make&& make) {
    auto found = entries_.find(key);
    if (found == entries_.end()) {
      if (is_capturing) {
        return nullptr;
      }
      found = entries_.emplace(key, Entry{.plan = make()}).first;
    }
    Entry& entry = found->second;
    entry.last_use = ++uses_;
    captured_ += is_capturing && !entry.captured ? 1 : 0;
    entry.captured = entry.captured || is_capturing;
    drop_oldest();
    return entry.plan ? &*entry.plan : nullptr;
  }

  /// Whether the key's answer stays: because it was given to settle(), or because a captured graph may have it.
  bool is_settled(const Key& key) const {
    const auto found = entries_.find(key);
    return found != entries_.end() && (found->second.settled || found->second.captured);
  }
  /// Answers the key with this plan, or with none, from now on. Does nothing if the key is settled.
  void settle(const Key& key, std::optional<Plan> plan) {
    if (!is_settled(key)) {
      entries_.insert_or_assign(key, Entry{.plan = std::move(plan), .last_use = ++uses_, .settled = true});
      drop_oldest();
    }
  }

  std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::optional<Plan> plan;  // nullopt if cuDNN has none
    std::uint64_t last_use = 0;
    bool captured = false;
    bool settled = false;
  };

  void drop_oldest() {
    if (entries_.size() - captured_ <= kMost) {
      return;
    }
    const auto age = [](const auto& entry) {
      return std::pair(entry.second.captured, entry.second.last_use);  // captured ones last
    };
    entries_.erase(std::min_element(entries_.begin(), entries_.end(),
                                    [&](const auto& x, const auto& y) { return age(x) < age(y); }));
  }

  std::map<Key, Entry> entries_{};
  std::uint64_t uses_ = 0;
  std::size_t captured_ = 0;
};

}  // namespace tandem::inline v0::kernels::gpu::cudnn
