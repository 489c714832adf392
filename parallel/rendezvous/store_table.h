#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <tandem/core/export.h>

// Internal: the contents of a store, without locks, waits or connections.

namespace tandem::inline v0::parallel {

/// Keys and values within kMaxStoreBytes. Not thread-safe. An operation beyond a limit, or on a value that is not a
/// counter, throws StoreError::Kind::refused and changes nothing.
class TANDEM_API StoreTable {
 public:
  /// Shared, since the value may be on its way to many ranks while it is replaced.
  using Value = std::shared_ptr<const std::string>;

  void set(const std::string& key, std::string value);
  /// Null if the key does not exist.
  Value find(const std::string& key) const;
  /// Adds to a counter, which is stored as decimal text, and returns the new value.
  std::int64_t add(const std::string& key, std::int64_t amount);
  bool erase(const std::string& key);

  /// The bytes that count towards kMaxStoreBytes.
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  std::map<std::string, Value> values_;
  std::size_t bytes_ = 0;
};

/// The share of kMaxStoreBytes that a key and a value of these lengths use.
constexpr std::size_t stored_bytes(std::size_t key, std::size_t value) { return key + value + 128; }

/// Returns the counter `text` plus `amount`. Throws StoreError::Kind::refused if `text` is not a counter or the sum
/// exceeds 64 bits.
TANDEM_API std::int64_t add_to_counter(std::string_view key, std::string_view text, std::int64_t amount);

/// Throws StoreError::Kind::refused if `used` plus `more` bytes exceed the capacity.
TANDEM_API void check_room(std::string_view key, std::size_t used, std::size_t more);

}  // namespace tandem::inline v0::parallel
