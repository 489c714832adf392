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

/// How many threads record a step at the moment (recorder.h).
TANDEM_API extern std::atomic<int> recorders_at_work;
/// Tells them that the elements of `storage` are used.
TANDEM_API void note_use(const Storage& storage) noexcept;

/// Where a tensor's elements are: storage and geometry, no history. The raw currency below autograd.
struct View {
  core::Ref<Storage> storage;
  std::int64_t offset = 0;  // in elements
  DType dtype = DType::f32;
  Shape sizes;
  Shape strides;  // in elements; 0 where a size is broadcast

  bool defined() const noexcept { return static_cast<bool>(storage); }
  Device device() const noexcept { return storage->device(); }
  void* data() const noexcept {
    if (recorders_at_work.load(std::memory_order_relaxed) != 0) [[unlikely]] {
      note_use(*storage);
    }
    if (storage->device().type == DeviceType::cuda &&
        (core::thread_state().stream != nullptr || storage->on_own_stream())) [[unlikely]] {
      storage->note_stream();
    }
    return storage->data() + offset * static_cast<std::int64_t>(item_size(dtype));
  }
  std::int64_t numel() const noexcept {
    std::uint64_t count = 1;  // may wrap around before a size of 0 is met
    for (const std::int64_t size : sizes) {
      count *= static_cast<std::uint64_t>(size);
    }
    return static_cast<std::int64_t>(count);
  }
  TANDEM_API bool is_contiguous() const noexcept;
};

/// Throws ShapeError naming `op` when several elements share memory: they cannot be written one by one.
TANDEM_API void check_writable(const char* op, const View& out);

/// Whether both devices look at the same memory: they are one, or logical CPU devices.
inline bool share_memory(Device a, Device b) noexcept {
  return a == b || (a.type == DeviceType::cpu && b.type == DeviceType::cpu);
}
/// The same elements, to be read only, as `device` sees them, which shares memory with theirs.
TANDEM_API View seen_from(Device device, const View& view);

// Geometry. Each throws ShapeError naming its arguments when they do not fit, and shares the storage.
TANDEM_API View permute(const View& view, const Shape& order);
TANDEM_API View transpose(const View& view, int dim0, int dim1);
/// Elements start, start + step, ... of `length` along `dim`; a negative start counts from the end.
TANDEM_API View narrow(const View& view, int dim, std::int64_t start, std::int64_t length, std::int64_t step = 1);
TANDEM_API View select(const View& view, int dim, std::int64_t index);
TANDEM_API View squeeze(const View& view, int dim);
TANDEM_API View unsqueeze(const View& view, int dim);
/// Broadcasts sizes of 1; -1 keeps a size.
TANDEM_API View expand(const View& view, const Shape& sizes);
/// `sizes` with at most one -1 replaced by what is left.
TANDEM_API Shape infer_shape(const View& view, const Shape& sizes, const char* op);
/// The same elements in row-major order under other sizes, if that needs no copy.
TANDEM_API std::optional<View> try_reshape(const View& view, const Shape& sizes);

}  // namespace tandem::inline v0::detail
