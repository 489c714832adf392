#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <tandem/core/error.h>
#include <tandem/core/export.h>

namespace tandem::inline v0::parallel {

/// The longest key, in bytes. The shortest has one.
inline constexpr std::size_t kMaxStoreKey = 1024;
/// The longest value, in bytes. It may be empty.
inline constexpr std::size_t kMaxStoreValue = std::size_t{1} << 20;
/// What a store holds in all: keys, values and 128 bytes for each.
inline constexpr std::size_t kMaxStoreBytes = std::size_t{64} << 20;
/// How long a call on a store waits unless it is told.
inline constexpr std::chrono::milliseconds kStoreTimeout{60'000};
/// The longest wait that can be asked for: a day.
inline constexpr std::chrono::milliseconds kMaxStoreTimeout{86'400'000};

/// Why a call on a store failed although it was right. A wrong call (an empty key, a value that is too long) is a
/// ConfigError.
class TANDEM_API StoreError : public IoError {
 public:
  /// What went wrong.
  enum class Kind : std::uint8_t {
    timeout,  // the deadline passed
    lost,     // there is no connection to the store any more, or there never was
    verdict,  // the job is over: the text is the verdict, word for word
    refused   // the store would not do it: it is full, or a counter is none
  };

  /// The text says what to do.
  StoreError(Kind kind, std::string message, std::source_location where = std::source_location::current());

  /// Which of them.
  Kind kind() const noexcept { return kind_; }

 private:
  Kind kind_;
};

/// A key-value store that the ranks of a job share, and by which they find each other: MemoryStore for ranks that are
/// threads, FileStore for a common folder, TcpStore for a StoreServer. Keys and values are bytes; nothing is executed
/// or unpacked. All functions may be called from several threads at once. None waits without a deadline: `timeout` is
/// at least 1 ms and at most a day, and StoreError::Kind::timeout says that it passed.
class TANDEM_API Store {
 public:
  virtual ~Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  /// Stores `value`, over what was there.
  void set(std::string_view key, std::string_view value, std::chrono::milliseconds timeout = kStoreTimeout);

  /// The value of `key`; waits until there is one.
  std::string get(std::string_view key, std::chrono::milliseconds timeout = kStoreTimeout);

  /// The value of `key`, or nothing where there is none now.
  std::optional<std::string> try_get(std::string_view key, std::chrono::milliseconds timeout = kStoreTimeout);

  /// Adds `amount` to the counter `key`, which starts at 0, and returns what it is then. A counter's value is its
  /// decimal text. After a StoreError other than `refused` it is unknown whether it was added; nothing is tried again.
  std::int64_t add(std::string_view key, std::int64_t amount, std::chrono::milliseconds timeout = kStoreTimeout);

  /// Stores `desired` if `key` has the value `expected`, or, with nothing expected, if there is no such key. Whether it
  /// did.
  bool compare_set(std::string_view key, std::optional<std::string_view> expected, std::string_view desired,
                   std::chrono::milliseconds timeout = kStoreTimeout);

  /// Waits until each of the keys has been there.
  void wait(std::span<const std::string> keys, std::chrono::milliseconds timeout = kStoreTimeout);

  /// Removes `key`. Whether it was there.
  bool erase(std::string_view key, std::chrono::milliseconds timeout = kStoreTimeout);

 protected:
  /// When a call must end.
  using Deadline = std::chrono::steady_clock::time_point;

  Store() = default;

 private:
  virtual void do_set(std::string_view key, std::string_view value, Deadline deadline) = 0;
  // Waits only if it is told to. Nothing: there is none, or the deadline passed. `value` may be null.
  virtual bool do_get(std::string_view key, bool wait, std::string* value, Deadline deadline) = 0;
  virtual std::int64_t do_add(std::string_view key, std::int64_t amount, Deadline deadline) = 0;
  virtual bool do_compare_set(std::string_view key, std::optional<std::string_view> expected, std::string_view desired,
                              Deadline deadline) = 0;
  virtual bool do_erase(std::string_view key, Deadline deadline) = 0;
};

}  // namespace tandem::inline v0::parallel
