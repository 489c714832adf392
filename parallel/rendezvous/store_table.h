#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <tandem/core/export.h>

// Internal: what a store knows, without locks, waiting or connections.

namespace tandem::inline v0::parallel {

/// Keys and values within kMaxStoreBytes. One thread at a time. Beyond a limit, or for a counter that is none, it
/// throws StoreError::Kind::refused and is unchanged.
class TANDEM_API StoreTable {
 public:
  /// Shared, since it may be on its way to many ranks while it is replaced.
  using Value = std::shared_ptr<const std::string>;

  void set(const std::string& key, std::string value);
  /// Null where there is none.
  Value find(const std::string& key) const;
  /// Adds to a counter, which is kept as decimal text; what it is then.
  std::int64_t add(const std::string& key, std::int64_t amount);
  /// Store::compare_set.
  bool compare_set(const std::string& key, std::optional<std::string_view> expected, std::string desired);
  bool erase(const std::string& key);

  /// What counts towards kMaxStoreBytes.
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  std::map<std::string, Value> values_;
  std::size_t bytes_ = 0;
};

/// What a key and a value of these lengths count.
constexpr std::size_t stored_bytes(std::size_t key, std::size_t value) { return key + value + 128; }

/// The counter with this text, plus `amount`. Throws StoreError::Kind::refused where it is none, or beyond 64 bits.
TANDEM_API std::int64_t add_to_counter(std::string_view key, std::string_view text, std::int64_t amount);

/// Throws StoreError::Kind::refused unless `used` plus `more` bytes are allowed.
TANDEM_API void check_room(std::string_view key, std::size_t used, std::size_t more);

}  // namespace tandem::inline v0::parallel
