#include <tandem/tensor/storage.h>

#include <new>
#include <utility>

#include <tandem/tensor/cpu_allocator.h>
#include <tandem/tensor/recorder.h>

#include <tandem/build.h>
#include <tandem/tensor/cuda_allocator.h>

namespace tandem::inline v0::detail {

namespace {
constexpr std::size_t kHeader = 64;  // keeps the data 64-byte aligned
static_assert(sizeof(Storage) <= kHeader);
using Deleter = std::function<void(void*)>;
}  // namespace

core::Ref<Storage> Storage::allocate(std::size_t bytes, Device device) {
  require_available(device);
  if (StepRecorder* recorder = step_recorder(); recorder != nullptr) [[unlikely]] {
    return recorder->allocate(bytes, device);
  }
  return allocate_unrecorded(bytes, device);
}

core::Ref<Storage> Storage::allocate_unrecorded(std::size_t bytes, [[maybe_unused]] Device device) {
#if TANDEM_WITH_CUDA
  if (device.type == DeviceType::cuda) {
    CudaBlock* memory = cuda_allocate(bytes, device);
    auto* block = static_cast<std::byte*>(cpu_allocate(kHeader));
    core::Ref<Storage> storage(new (block) Storage(cuda_data(memory), bytes, device, nullptr));
    storage->cuda_block_ = memory;
    storage->own_stream_ = core::thread_state().stream != nullptr;
    return storage;
  }
#endif
  auto* block = static_cast<std::byte*>(cpu_allocate(kHeader + bytes));
  return core::Ref<Storage>(new (block) Storage(block + kHeader, bytes, device, nullptr));
}

#if TANDEM_WITH_CUDA
void Storage::note_stream() const {
  const Storage* owner = this;
  while (owner->parent_) {
    owner = owner->parent_.get();
  }
  if (owner->cuda_block_ != nullptr) {
    cuda_note_stream(owner->cuda_block_);
  }
}

void Storage::count_as(core::MemoryUse use) const {
  if (cuda_block_ != nullptr) {
    cuda_count_as(cuda_block_, use);
  }
}
#else
void Storage::note_stream() const {}
void Storage::count_as(core::MemoryUse) const {}
#endif

core::Ref<Storage> Storage::segment(core::Ref<Storage> parent, std::size_t offset, std::size_t bytes) {
  auto* block = static_cast<std::byte*>(cpu_allocate(kHeader));
  std::byte* data = parent->data() + offset;
  const Device device = parent->device();
  const bool own_stream = parent->own_stream_;
  core::Ref<Storage> segment(new (block) Storage(data, bytes, device, std::move(parent)));
  segment->own_stream_ = own_stream;
  return segment;
}

core::Ref<Storage> Storage::adopt(void* data, std::size_t bytes, Device device, std::function<void(void*)> deleter,
                                  core::Ref<Storage> owner) {
  require_available(device);
  const bool own_stream = owner && owner->own_stream_;
  auto* block = static_cast<std::byte*>(cpu_allocate(kHeader + sizeof(Deleter)));
  new (block + kHeader) Deleter(std::move(deleter));
  core::Ref<Storage> storage(new (block) Storage(static_cast<std::byte*>(data), bytes, device, std::move(owner)));
  storage->adopted_ = true;
  storage->own_stream_ = own_stream;
  return storage;
}

core::Ref<Storage> Storage::alias(core::Ref<Storage> original, Device device) {
  require_available(device);
  if (original->alias_) {
    original = original->parent_;
  }
  auto* block = static_cast<std::byte*>(cpu_allocate(kHeader));
  std::byte* data = original->data();
  const std::size_t bytes = original->bytes();
  core::Ref<Storage> seen(new (block) Storage(data, bytes, device, std::move(original)));
  seen->alias_ = true;
  seen->own_stream_ = seen->parent_->own_stream_;
  return seen;
}

void Storage::set_guard(StorageGuard* guard) const noexcept {
  use_observers.fetch_add((guard != nullptr ? 1 : 0) - (guard_ != nullptr ? 1 : 0), std::memory_order_relaxed);
  guard_ = guard;
}

void Storage::destroy(const Storage* storage) noexcept {
  if (storage->guard_ != nullptr) {
    storage->set_guard(nullptr);
  }
  auto* block = const_cast<Storage*>(storage);
  std::size_t bytes = kHeader;
  if (storage->adopted_) {
    auto* deleter = std::launder(reinterpret_cast<Deleter*>(reinterpret_cast<std::byte*>(block) + kHeader));
    if (*deleter) {
      (*deleter)(storage->data_);
    }
    deleter->~Deleter();
    bytes += sizeof(Deleter);
  } else if (storage->cuda_block_ != nullptr) {
#if TANDEM_WITH_CUDA
    cuda_free(storage->cuda_block_);
#endif
  } else if (!storage->parent_) {
    bytes += storage->bytes_;
  }
  block->~Storage();
  cpu_free(block, bytes);
}

}  // namespace tandem::inline v0::detail
