#include <tandem/parallel/rendezvous/store_table.h>

#include <charconv>
#include <utility>

#include <fmt/format.h>

#include <tandem/parallel/rendezvous/store.h>
#include <tandem/parallel/rendezvous/text.h>

namespace tandem::inline v0::parallel {

std::int64_t add_to_counter(std::string_view key, std::string_view text, std::int64_t amount) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw StoreError(StoreError::Kind::refused,
                     fmt::format("store add: the value of '{}' is no counter: '{}'", shown_key(key), shown_key(text)));
  }
  if (__builtin_add_overflow(value, amount, &value)) {
    throw StoreError(StoreError::Kind::refused,
                     fmt::format("store add: the counter '{}' would leave 64 bits", shown_key(key)));
  }
  return value;
}

void check_room(std::string_view key, std::size_t used, std::size_t more) {
  if (used + more > kMaxStoreBytes) {
    throw StoreError(StoreError::Kind::refused,
                     fmt::format("store set: '{}' needs {} bytes more, and {} of {} are in use: erase keys that are no "
                                 "longer needed",
                                 shown_key(key), more, used, kMaxStoreBytes));
  }
}

void StoreTable::set(const std::string& key, std::string value) {
  auto entry = values_.find(key);
  const std::size_t before = entry == values_.end() ? 0 : stored_bytes(key.size(), entry->second->size());
  const std::size_t after = stored_bytes(key.size(), value.size());
  if (after > before) {
    check_room(key, bytes_, after - before);
  }
  auto shared = std::make_shared<const std::string>(std::move(value));
  if (entry == values_.end()) {
    values_.emplace(key, std::move(shared));
  } else {
    entry->second = std::move(shared);
  }
  bytes_ += after - before;
}

StoreTable::Value StoreTable::find(const std::string& key) const {
  const auto entry = values_.find(key);
  return entry == values_.end() ? nullptr : entry->second;
}

std::int64_t StoreTable::add(const std::string& key, std::int64_t amount) {
  const Value before = find(key);
  const std::int64_t value = add_to_counter(key, before ? std::string_view(*before) : "0", amount);
  set(key, std::to_string(value));
  return value;
}

bool StoreTable::erase(const std::string& key) {
  const auto entry = values_.find(key);
  if (entry == values_.end()) {
    return false;
  }
  bytes_ -= stored_bytes(key.size(), entry->second->size());
  values_.erase(entry);
  return true;
}

}  // namespace tandem::inline v0::parallel
