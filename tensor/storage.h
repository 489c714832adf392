#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

#include <tandem/core/device.h>
#include <tandem/core/export.h>
#include <tandem/core/intrusive.h>
#include <tandem/core/thread_state.h>

namespace tandem::inline v0::detail {

struct CudaBlock;

/// A range of memory that tensors look into: the unit that has one version. Normally it owns its memory (header and
/// data are one block); a *segment* is a part of another storage with a version of its own, so that parameters packed
/// into one allocation are still told apart.
class TANDEM_API Storage final : public core::RefCounted {
 public:
  /// Uninitialised memory of `bytes` on `device`.
  static core::Ref<Storage> allocate(std::size_t bytes, Device device);
  /// The same, no matter who records.
  static core::Ref<Storage> allocate_unrecorded(std::size_t bytes, Device device);
  /// `bytes` at `offset` of `parent`, which is kept alive.
  static core::Ref<Storage> segment(core::Ref<Storage> parent, std::size_t offset, std::size_t bytes);
  /// `bytes` at `data`, which others own: `deleter`, which must not throw, is called with it once nothing looks there
  /// any more. If it is a part of `owner`, that is kept alive, and learns which streams work there.
  static core::Ref<Storage> adopt(void* data, std::size_t bytes, Device device, std::function<void(void*)> deleter,
                                  core::Ref<Storage> owner = nullptr);
  /// The memory of `original`, which is kept alive, as `device` sees it: another logical CPU device, so that nothing
  /// has to be copied. Versions are those of the original. To be read only.
  static core::Ref<Storage> alias(core::Ref<Storage> original, Device device);
  static void destroy(const Storage* storage) noexcept;

  std::byte* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }
  Device device() const noexcept { return device_; }
  const Storage* parent() const noexcept { return parent_.get(); }
  bool is_alias() const noexcept { return alias_; }

  /// Grows with every change in place; what was saved for a backward pass remembers it.
  std::uint32_t version() const noexcept {
    return (alias_ ? *parent_ : *this).version_.load(std::memory_order_relaxed);
  }
  void bump_version() const noexcept {
    // Concurrent writers of one tensor are not allowed: no read-modify-write is needed.
    version_.store(version() + 1, std::memory_order_relaxed);
  }
  void set_version(std::uint32_t version) const noexcept { version_.store(version, std::memory_order_relaxed); }
  /// Set when an op in place was recorded for one tensor on this storage: the history of all others is out of date.
  bool tracked() const noexcept { return tracked_; }
  void set_tracked(bool on) const noexcept { tracked_ = on; }
  /// A captured step uses it: moving or freezing what lies here is its business (note_step_change).
  bool watched() const noexcept { return watched_.load(std::memory_order_relaxed); }
  void watch() const noexcept { watched_.store(true, std::memory_order_relaxed); }
  /// Made by a step that is being recorded.
  bool recorded() const noexcept { return recorded_.load(std::memory_order_relaxed); }
  void set_recorded(bool on) const noexcept { recorded_.store(on, std::memory_order_relaxed); }
  /// Whether a leaf that requires a gradient has its elements here. Counted, so that it ends with the last of them:
  /// frozen, moved to other memory, or gone.
  bool holds_leaf() const noexcept { return leaves_.load(std::memory_order_relaxed) > 0; }
  void add_leaf() const noexcept { leaves_.fetch_add(1, std::memory_order_relaxed); }
  /// A GPU's memory: whether it was made on another stream than the default one.
  bool on_own_stream() const noexcept { return own_stream_; }
  /// A GPU's memory: the calling thread's current stream works with it, and it may not be the one that it was made on.
  void note_stream() const;
  /// A GPU's memory of its own: what it counts as from now on.
  void count_as(core::MemoryUse use) const;
  void remove_leaf() const noexcept { leaves_.fetch_sub(1, std::memory_order_relaxed); }

 private:
  Storage(std::byte* data, std::size_t bytes, Device device, core::Ref<Storage> parent) noexcept
      : device_(device), data_(data), bytes_(bytes), parent_(std::move(parent)) {}
  ~Storage() = default;

  mutable std::atomic<std::uint32_t> version_{0};
  mutable bool tracked_ = false;
  mutable std::atomic<bool> recorded_{false};
  mutable std::atomic<bool> watched_{false};
  bool own_stream_ = false;
  bool adopted_ = false;  // the deleter lies behind the header
  bool alias_ = false;    // of its parent, for another device
  mutable std::atomic<std::uint32_t> leaves_{0};
  Device device_;
  std::byte* data_;
  std::size_t bytes_;
  core::Ref<Storage> parent_;
  CudaBlock* cuda_block_ = nullptr;  // a GPU's memory that is its own
};

}  // namespace tandem::inline v0::detail
