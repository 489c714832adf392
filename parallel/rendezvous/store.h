#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <tandem/core/error.h>
#include <tandem/core/export.h>

namespace tandem::inline v0::parallel {

/// The longest key, in bytes. A key must not be empty.
inline constexpr std::size_t kMaxStoreKey = 1024;
/// The longest value, in bytes. A value may be empty.
inline constexpr std::size_t kMaxStoreValue = std::size_t{1} << 20;
/// The capacity of a store, in bytes: all keys and values plus 128 bytes for each pair.
inline constexpr std::size_t kMaxStoreBytes = std::size_t{64} << 20;
/// The default deadline of a call on a store.
inline constexpr std::chrono::milliseconds kStoreTimeout{60'000};
/// The longest timeout allowed: one day.
inline constexpr std::chrono::milliseconds kMaxStoreTimeout{86'400'000};

/// A valid call on a store that failed. An invalid call, with an empty key or a value that is too long, throws
/// ConfigError.
class TANDEM_API StoreError : public IoError {
 public:
  /// The reason for the failure.
  enum class Kind : std::uint8_t {
    timeout,  // the deadline passed
    lost,     // the connection to the store is lost or could not be made
    verdict,  // the job is over: the text is the verdict, word for word
    refused   // the store is full, or the value is not a counter
  };

  /// `message` must tell the user what to do.
  StoreError(Kind kind, std::string message, std::source_location where = std::source_location::current());

  /// The reason for the failure.
  Kind kind() const noexcept { return kind_; }

 private:
  Kind kind_;
};

/// A key-value store by which the ranks of a job find each other: MemoryStore for ranks that are threads, FileStore for
/// a common folder, TcpStore for a StoreServer. Keys and values are bytes; the store neither executes nor unpacks them.
/// All functions are thread-safe. Every wait has a deadline: `timeout` must be between 1 ms and one day, and a call
/// that exceeds it throws StoreError::Kind::timeout.
class TANDEM_API Store {
 public:
  virtual ~Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  /// Stores `value` and replaces an earlier value.
  void set(std::string_view key, std::string_view value, std::chrono::milliseconds timeout = kStoreTimeout);

  /// Returns the value of `key`; waits until the key exists.
  std::string get(std::string_view key, std::chrono::milliseconds timeout = kStoreTimeout);

  /// Like get(), but returns nothing after the deadline, and soon after `goes_on` has returned false. `goes_on` is
  /// called several times a second; it may use the store, and its exceptions end the call. However slow the connection,
  /// the call is one request.
  std::optional<std::string> get_while(std::string_view key, std::chrono::milliseconds timeout,
                                       const std::function<bool()>& goes_on);

  /// Returns the value of `key`, or std::nullopt if the key does not exist now.
  std::optional<std::string> try_get(std::string_view key, std::chrono::milliseconds timeout = kStoreTimeout);

  /// Adds `amount` to the counter `key`, which starts at 0, and returns the new value. A counter is stored as decimal
  /// text. After a StoreError other than `refused` the addition may or may not have happened; the store does not retry.
  std::int64_t add(std::string_view key, std::int64_t amount, std::chrono::milliseconds timeout = kStoreTimeout);

  /// Waits until each of the keys has existed.
  void wait(std::span<const std::string> keys, std::chrono::milliseconds timeout = kStoreTimeout);

  /// Removes `key` and returns whether it existed.
  bool erase(std::string_view key, std::chrono::milliseconds timeout = kStoreTimeout);

  /// Like set(), but does not wait for a distant store. Later calls of this object see the effect. If the store
  /// refuses, a call that waits throws, or else a later one.
  void post_set(std::string_view key, std::string_view value);
  /// Like erase(), but does not wait, as post_set().
  void post_erase(std::string_view key);
  /// Adds 1 to `counter`, without waiting, as post_set(). The addition that makes it `count` erases `counter` and
  /// `key`.
  void post_count(std::string_view counter, std::int64_t count, std::string_view key);

 protected:
  /// The time at which a call must end.
  using Deadline = std::chrono::steady_clock::time_point;

  /// The time between two calls of get_while()'s `goes_on`.
  static constexpr std::chrono::milliseconds kLook{200};

  Store() = default;

  /// The share of kMaxStoreBytes that a key and a value of these lengths use.
  static constexpr std::size_t stored_bytes(std::size_t key, std::size_t value) { return key + value + 128; }
  /// Throws StoreError::Kind::refused if `used` plus `more` bytes exceed the capacity.
  static void check_room(std::string_view key, std::size_t used, std::size_t more);
  /// Returns the counter `text` plus `amount`. Throws StoreError::Kind::refused if `text` is not a counter or the sum
  /// exceeds 64 bits.
  static std::int64_t add_to_counter(std::string_view key, std::string_view text, std::int64_t amount);

 private:
  virtual void do_set(std::string_view key, std::string_view value, Deadline deadline) = 0;
  // Waits only if `wait`. Returns false if the key does not exist or the deadline passed. `value` may be null.
  virtual bool do_get(std::string_view key, bool wait, std::string* value, Deadline deadline) = 0;
  // As get_while(). This version asks again and again.
  virtual bool do_get_while(std::string_view key, std::string* value, Deadline deadline,
                            const std::function<bool()>& goes_on);
  virtual std::int64_t do_add(std::string_view key, std::int64_t amount, Deadline deadline) = 0;
  virtual bool do_erase(std::string_view key, Deadline deadline) = 0;
  // As post_set(), post_erase() and post_count(). These versions wait.
  virtual void do_post_set(std::string_view key, std::string_view value);
  virtual void do_post_erase(std::string_view key);
  virtual void do_post_count(std::string_view counter, std::int64_t count, std::string_view key);
};

}  // namespace tandem::inline v0::parallel
