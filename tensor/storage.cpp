#include <tandem/tensor/storage.h>

#include <new>

#include <tandem/tensor/cpu_allocator.h>

namespace tandem::inline v0::detail {

namespace {
constexpr std::size_t kHeader = 64;  // keeps the data 64-byte aligned
static_assert(sizeof(Storage) <= kHeader);
}  // namespace

core::Ref<Storage> Storage::allocate(std::size_t bytes, Device device) {
  require_available(device);
  auto* block = static_cast<std::byte*>(cpu_allocate(kHeader + bytes));
  return core::Ref<Storage>(new (block) Storage(block + kHeader, bytes, device, nullptr));
}

core::Ref<Storage> Storage::segment(core::Ref<Storage> parent, std::size_t offset, std::size_t bytes) {
  auto* block = static_cast<std::byte*>(cpu_allocate(kHeader));
  std::byte* data = parent->data() + offset;
  const Device device = parent->device();
  return core::Ref<Storage>(new (block) Storage(data, bytes, device, std::move(parent)));
}

void Storage::destroy(const Storage* storage) noexcept {
  const std::size_t bytes = kHeader + (storage->parent_ ? 0 : storage->bytes_);
  auto* block = const_cast<Storage*>(storage);
  block->~Storage();
  cpu_free(block, bytes);
}

}  // namespace tandem::inline v0::detail
