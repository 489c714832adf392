#include <tandem/parallel/rendezvous/memory_store.h>

#include <condition_variable>
#include <mutex>
#include <string>

#include <tandem/parallel/rendezvous/store_table.h>

namespace tandem::inline v0::parallel {

struct MemoryStore::Impl {
  std::mutex mutex;
  std::condition_variable changed;
  StoreTable table;

  // Only the mutex can block here, so no deadline is needed.
  template <class Change>
  auto change(Change&& make) {
    const std::lock_guard lock(mutex);
    const auto result = make(table);
    changed.notify_all();
    return result;
  }
};

MemoryStore::MemoryStore() : impl_(std::make_unique<Impl>()) {}
MemoryStore::~MemoryStore() = default;

void MemoryStore::do_set(std::string_view key, std::string_view value, Deadline /*deadline*/) {
  impl_->change([&](StoreTable& table) {
    table.set(std::string(key), std::string(value));
    return 0;
  });
}

bool MemoryStore::do_get(std::string_view key, bool wait, std::string* value, Deadline deadline) {
  const std::string name(key);
  std::unique_lock lock(impl_->mutex);
  StoreTable::Value found = impl_->table.find(name);
  if (wait && !found) {
    impl_->changed.wait_until(lock, deadline, [&] { return (found = impl_->table.find(name)) != nullptr; });
  }
  if (found && value != nullptr) {
    *value = *found;
  }
  return found != nullptr;
}

std::int64_t MemoryStore::do_add(std::string_view key, std::int64_t amount, Deadline /*deadline*/) {
  return impl_->change([&](StoreTable& table) { return table.add(std::string(key), amount); });
}

bool MemoryStore::do_erase(std::string_view key, Deadline /*deadline*/) {
  return impl_->change([&](StoreTable& table) { return table.erase(std::string(key)); });
}

}  // namespace tandem::inline v0::parallel
