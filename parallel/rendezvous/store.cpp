#include <tandem/parallel/rendezvous/store.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include <tandem/core/check.h>
#include <tandem/parallel/rendezvous/text.h>

namespace tandem::inline v0::parallel {

StoreError::StoreError(Kind kind, std::string message, std::source_location where)
    : IoError(std::move(message), where), kind_(kind) {}

namespace {

using std::chrono::milliseconds;

void check_key(const char* what, std::string_view key) {
  check<ConfigError>(!key.empty() && key.size() <= kMaxStoreKey, "store {}: expected a key of 1 to {} bytes, got {}",
                     what, kMaxStoreKey, key.size());
}

void check_pair(std::string_view key, std::string_view value) {
  check_key("set", key);
  check<ConfigError>(value.size() <= kMaxStoreValue,
                     "store set: the value of '{}' has {} bytes, at most {} are allowed: cut it into several keys",
                     shown_key(key), value.size(), kMaxStoreValue);
}

std::chrono::steady_clock::time_point deadline_of(const char* what, milliseconds timeout) {
  check<ConfigError>(timeout.count() >= 1 && timeout <= kMaxStoreTimeout,
                     "store {}: expected a timeout of 1 ms to {} ms, got {} ms", what, kMaxStoreTimeout.count(),
                     timeout.count());
  return std::chrono::steady_clock::now() + timeout;
}

[[noreturn]] void fail_wait(const char* what, std::string_view key, milliseconds timeout) {
  fail_store(StoreError::Kind::timeout,
             "store {}: the key '{}' did not appear within {} ms: who should set it has not come that far, or is gone",
             what, shown_key(key), timeout.count());
}

}  // namespace

void Store::set(std::string_view key, std::string_view value, milliseconds timeout) {
  check_pair(key, value);
  do_set(key, value, deadline_of("set", timeout));
}

std::string Store::get(std::string_view key, milliseconds timeout) {
  check_key("get", key);
  std::string value;
  if (!do_get(key, true, &value, deadline_of("get", timeout))) {
    fail_wait("get", key, timeout);
  }
  return value;
}

std::optional<std::string> Store::get_while(std::string_view key, milliseconds timeout,
                                            const std::function<bool()>& goes_on) {
  check_key("get", key);
  std::string value;
  if (!do_get_while(key, &value, deadline_of("get", timeout), goes_on)) {
    return std::nullopt;
  }
  return value;
}

bool Store::do_get_while(std::string_view key, std::string* value, Deadline deadline,
                         const std::function<bool()>& goes_on) {
  do {
    if (do_get(key, true, value, std::min(deadline, std::chrono::steady_clock::now() + kLook))) {
      return true;
    }
  } while (std::chrono::steady_clock::now() < deadline && goes_on());
  return false;
}

std::optional<std::string> Store::try_get(std::string_view key, milliseconds timeout) {
  check_key("try_get", key);
  std::string value;
  if (!do_get(key, false, &value, deadline_of("try_get", timeout))) {
    return std::nullopt;
  }
  return value;
}

std::int64_t Store::add(std::string_view key, std::int64_t amount, milliseconds timeout) {
  check_key("add", key);
  return do_add(key, amount, deadline_of("add", timeout));
}

void Store::wait(std::span<const std::string> keys, milliseconds timeout) {
  const Deadline deadline = deadline_of("wait", timeout);
  for (const std::string& key : keys) {
    check_key("wait", key);
    if (!do_get(key, true, nullptr, deadline)) {
      fail_wait("wait", key, timeout);
    }
  }
}

bool Store::erase(std::string_view key, milliseconds timeout) {
  check_key("erase", key);
  return do_erase(key, deadline_of("erase", timeout));
}

void Store::post_set(std::string_view key, std::string_view value) {
  check_pair(key, value);
  do_post_set(key, value);
}

void Store::post_erase(std::string_view key) {
  check_key("erase", key);
  do_post_erase(key);
}

void Store::post_count(std::string_view counter, std::int64_t count, std::string_view key) {
  check_key("add", counter);
  check_key("erase", key);
  do_post_count(counter, count, key);
}

void Store::do_post_set(std::string_view key, std::string_view value) {
  do_set(key, value, deadline_of("set", kStoreTimeout));
}

void Store::do_post_erase(std::string_view key) { do_erase(key, deadline_of("erase", kStoreTimeout)); }

void Store::do_post_count(std::string_view counter, std::int64_t count, std::string_view key) {
  if (do_add(counter, 1, deadline_of("add", kStoreTimeout)) == count) {
    do_post_erase(key);
    do_post_erase(counter);
  }
}

void Store::check_room(std::string_view key, std::size_t used, std::size_t more) {
  if (used + more > kMaxStoreBytes) {
    fail_store(StoreError::Kind::refused,
               "store set: '{}' needs {} bytes more, and {} of {} are in use: erase keys that are no longer needed",
               shown_key(key), more, used, kMaxStoreBytes);
  }
}

std::int64_t Store::add_to_counter(std::string_view key, std::string_view text, std::int64_t amount) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    fail_store(StoreError::Kind::refused, "store add: the value of '{}' is no counter: '{}'", shown_key(key),
               shown_key(text));
  }
  if (__builtin_add_overflow(value, amount, &value)) {
    fail_store(StoreError::Kind::refused, "store add: the counter '{}' would leave 64 bits", shown_key(key));
  }
  return value;
}

}  // namespace tandem::inline v0::parallel
