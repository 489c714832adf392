#include <tandem/parallel/rendezvous/memory_store.h>

namespace tandem::inline v0::parallel {

MemoryStore::Value MemoryStore::look_up(std::string_view key) const {
  const auto entry = values_.find(key);
  return entry == values_.end() ? nullptr : entry->second;
}

void MemoryStore::replace(std::string_view key, std::string_view value) {
  const Value old = look_up(key);
  const std::size_t before = old ? stored_bytes(key.size(), old->size()) : 0;
  const std::size_t after = stored_bytes(key.size(), value.size());
  if (after > before) {
    check_room(key, bytes_, after - before);
  }
  values_.insert_or_assign(std::string(key), std::make_shared<const std::string>(value));
  bytes_ += after - before;
  changed_.notify_all();
}

MemoryStore::Value MemoryStore::find(std::string_view key) const {
  const std::lock_guard lock(mutex_);
  return look_up(key);
}

std::size_t MemoryStore::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

// Only the mutex can block a change, so no deadline is needed.
void MemoryStore::do_set(std::string_view key, std::string_view value, Deadline /*deadline*/) {
  const std::lock_guard lock(mutex_);
  replace(key, value);
}

bool MemoryStore::do_get(std::string_view key, bool wait, std::string* value, Deadline deadline) {
  std::unique_lock lock(mutex_);
  Value found = look_up(key);
  if (wait && !found) {
    changed_.wait_until(lock, deadline, [&] { return (found = look_up(key)) != nullptr; });
  }
  if (found && value != nullptr) {
    *value = *found;
  }
  return found != nullptr;
}

std::int64_t MemoryStore::do_add(std::string_view key, std::int64_t amount, Deadline /*deadline*/) {
  const std::lock_guard lock(mutex_);
  const Value before = look_up(key);
  const std::int64_t value = add_to_counter(key, before ? std::string_view(*before) : "0", amount);
  replace(key, std::to_string(value));
  return value;
}

bool MemoryStore::do_erase(std::string_view key, Deadline /*deadline*/) {
  const std::lock_guard lock(mutex_);
  const auto entry = values_.find(key);
  if (entry == values_.end()) {
    return false;
  }
  bytes_ -= stored_bytes(key.size(), entry->second->size());
  values_.erase(entry);
  return true;
}

}  // namespace tandem::inline v0::parallel
