#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include <tandem/core/dtype.h>
#include <tandem/core/export.h>
#include <tandem/core/shape.h>
#include <tandem/core/thread_state.h>
#include <tandem/tensor/storage.h>

namespace tandem::inline v0::detail {

/// Number of threads that record a step (recorder.h) and of storages that have a guard. While it is 0, which is the
/// usual case, taking an address costs one load more.
TANDEM_API extern std::atomic<int> use_observers;
/// Asks the guard of `storage`, which may throw.
void ask_guard(const Storage& storage);
/// ask_guard(), and then what note_part_use() does.
TANDEM_API void note_use(const Storage& storage);
/// Tells the threads that record a step that elements of `storage` are being used.
TANDEM_API void note_part_use(const Storage& storage) noexcept;

/// The location of a tensor's elements: storage and geometry, without history. Code below autograd works on views.
struct View {
  core::Ref<Storage> storage;
  std::int64_t offset = 0;  // in elements
  DType dtype = DType::f32;
  MemoryFormat tag = MemoryFormat::contiguous;  // the format that is meant, see memory_format()
  Shape sizes;
  Shape strides;  // in elements; 0 where a size is broadcast

  bool defined() const noexcept { return static_cast<bool>(storage); }
  Device device() const noexcept { return storage->device(); }
  /// The address of the first element. Throws the error of the storage's guard, if the elements may not be used now.
  void* data() const {
    if (use_observers.load(std::memory_order_relaxed) != 0) [[unlikely]] {
      note_use(*storage);
    }
    return address();
  }
  /// data() without asking the guard: for whoever uses only the elements that this rank keeps, or none.
  void* part_data() const noexcept {
    if (use_observers.load(std::memory_order_relaxed) != 0) [[unlikely]] {
      note_part_use(*storage);
    }
    return address();
  }
  std::int64_t numel() const noexcept {
    std::uint64_t count = 1;  // may wrap around before a size of 0 is reached
    for (const std::int64_t size : sizes) {
      count *= static_cast<std::uint64_t>(size);
    }
    return static_cast<std::int64_t>(count);
  }
  /// Whether the elements lie in this order without gaps.
  bool is_dense(MemoryFormat format) const noexcept {
    return format == MemoryFormat::contiguous ? is_contiguous() : lies_channels_last();
  }
  /// channels_last if the elements lie so and the tag says that this is meant. The strides alone do not tell: those of
  /// one channel, or of one pixel, fit both formats. The tag stays with views of a view, which may lie otherwise. Only
  /// views on GPUs have it.
  MemoryFormat memory_format() const noexcept {
    return tag == MemoryFormat::contiguous || lies_channels_last() ? tag : MemoryFormat::contiguous;
  }
  bool is_channels_last() const noexcept { return memory_format() == MemoryFormat::channels_last; }
  bool is_contiguous() const noexcept {
    const std::int64_t* stride = strides.begin();
    const std::int64_t* size = sizes.begin();
    switch (sizes.ndim()) {
      case 0: return true;
      case 1: return stride[0] == 1 || size[0] <= 1;
      case 2: return (stride[1] == 1 && stride[0] == size[1]) || is_contiguous_slow();
      default: return is_contiguous_slow();
    }
  }

 private:
  void* address() const noexcept {
    if (storage->device().type == DeviceType::cuda &&
        (core::thread_state().stream != nullptr || storage->on_own_stream())) [[unlikely]] {
      storage->note_stream();
    }
    return storage->data() + offset * static_cast<std::int64_t>(item_size(dtype));
  }
  TANDEM_API bool is_contiguous_slow() const noexcept;
  TANDEM_API bool lies_channels_last() const noexcept;
};

/// Throws ShapeError naming `op` if several elements share memory and so cannot be written one by one.
TANDEM_API void check_writable(const char* op, const View& out);

/// Whether both devices address the same memory: they are equal, or both are logical CPU devices.
inline bool share_memory(Device a, Device b) noexcept {
  return a == b || (a.type == DeviceType::cpu && b.type == DeviceType::cpu);
}
/// A read-only view of the same elements as seen from `device`, which must share memory with their own device.
TANDEM_API View seen_from(Device device, const View& view);

// Functions on geometry. Each shares the storage and throws ShapeError naming its arguments if they do not fit.
TANDEM_API View permute(const View& view, const Shape& order);
TANDEM_API View transpose(const View& view, int dim0, int dim1);
/// `length` elements start, start + step, ... along `dim`; a negative `start` counts from the end.
TANDEM_API View narrow(const View& view, int dim, std::int64_t start, std::int64_t length, std::int64_t step = 1);
TANDEM_API View select(const View& view, int dim, std::int64_t index);
TANDEM_API View squeeze(const View& view, int dim);
TANDEM_API View unsqueeze(const View& view, int dim);
/// Broadcasts dimensions of size 1; -1 keeps a size.
TANDEM_API View expand(const View& view, const Shape& sizes);
/// `sizes`, with at most one -1 replaced by the remaining number of elements.
TANDEM_API Shape infer_shape(const View& view, const Shape& sizes, const char* op);
/// A view of all elements in row-major order with other sizes, if that needs no copy.
TANDEM_API std::optional<View> try_reshape(const View& view, const Shape& sizes);

}  // namespace tandem::inline v0::detail
