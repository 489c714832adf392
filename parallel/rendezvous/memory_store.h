#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include <tandem/core/export.h>
#include <tandem/parallel/rendezvous/store.h>

namespace tandem::inline v0::parallel {

/// A store for ranks that are threads of one process, all of which use the same object. A StoreServer keeps its keys in
/// a MemoryStore, too.
class TANDEM_API MemoryStore final : public Store {
 public:
  /// Shared, since a value may be on its way to many ranks while it is replaced.
  using Value = std::shared_ptr<const std::string>;

  /// The value of `key` without a copy; null if the key does not exist.
  Value find(std::string_view key) const;
  /// The bytes that count towards kMaxStoreBytes.
  std::size_t bytes() const;

 private:
  void do_set(std::string_view key, std::string_view value, Deadline deadline) override;
  bool do_get(std::string_view key, bool wait, std::string* value, Deadline deadline) override;
  std::int64_t do_add(std::string_view key, std::int64_t amount, Deadline deadline) override;
  bool do_erase(std::string_view key, Deadline deadline) override;

  // Call these with the mutex locked.
  Value look_up(std::string_view key) const;
  void replace(std::string_view key, std::string_view value);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Value, std::less<>> values_;
  std::size_t bytes_ = 0;
};

}  // namespace tandem::inline v0::parallel
