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
class Storage;

/// Decides whether the elements of storages may be used, for whoever has given back the memory of some of them.
class StorageGuard {
 public:
  /// Called before the calling thread gets the address of elements in `storage`, which may be an alias of the guarded
  /// one. Returns when all of them are there, or throws.
  virtual void on_use(const Storage& storage) = 0;

 protected:
  ~StorageGuard() = default;
};

/// While it exists, this thread uses elements without asking guards, for somebody who has asked them.
class UnguardedScope {
 public:
  [[nodiscard]] UnguardedScope() noexcept;
  ~UnguardedScope();
  UnguardedScope(const UnguardedScope&) = delete;
  UnguardedScope& operator=(const UnguardedScope&) = delete;

 private:
  bool was_;
};

/// A range of memory that tensors view: the unit that carries one version number. A storage normally owns its memory
/// (header and data are one block). A *segment* is a part of another storage with its own version, so parameters packed
/// into one allocation are still tracked separately.
class TANDEM_API Storage final : public core::RefCounted {
 public:
  /// Allocates `bytes` of uninitialised memory on `device`.
  static core::Ref<Storage> allocate(std::size_t bytes, Device device);
  /// Allocates memory outside the recorded step, even if this thread records one.
  static core::Ref<Storage> allocate_unrecorded(std::size_t bytes, Device device);
  /// A segment of `bytes` at `offset` of `parent`, which stays alive.
  static core::Ref<Storage> segment(core::Ref<Storage> parent, std::size_t offset, std::size_t bytes);
  /// Wraps `bytes` of foreign memory at `data`. `deleter`, which must not throw, is called with `data` once nothing
  /// uses the memory. If the memory is a part of `owner`, the owner stays alive and learns which streams use the
  /// memory.
  static core::Ref<Storage> adopt(void* data, std::size_t bytes, Device device, std::function<void(void*)> deleter,
                                  core::Ref<Storage> owner = nullptr);
  /// The memory of `original`, which stays alive, as seen from another logical CPU device, so nothing is copied. The
  /// versions are those of the original. The alias is read-only.
  static core::Ref<Storage> alias(core::Ref<Storage> original, Device device);
  static void destroy(const Storage* storage) noexcept;

  std::byte* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }
  Device device() const noexcept { return device_; }
  const Storage* parent() const noexcept { return parent_.get(); }
  /// The guard is asked before elements are used; null: nobody is. An alias has that of its original.
  StorageGuard* guard() const noexcept { return (alias_ ? *parent_ : *this).guard_; }
  /// Sets or, with null, removes the guard, which must outlive the storage or be removed. No other thread may be using
  /// the storage.
  void set_guard(StorageGuard* guard) const noexcept;
  bool is_alias() const noexcept { return alias_; }
  /// Whether somebody else may use the memory, such as the program that called from_blob().
  bool is_foreign() const noexcept { return foreign_; }
  void set_foreign() const noexcept { foreign_ = true; }

  /// Grows with every in-place change; values saved for a backward pass remember it.
  std::uint32_t version() const noexcept {
    return (alias_ ? *parent_ : *this).version_.load(std::memory_order_relaxed);
  }
  void bump_version() const noexcept {
    // Concurrent writes to one tensor are forbidden, so no read-modify-write is needed.
    version_.store(version() + 1, std::memory_order_relaxed);
  }
  void set_version(std::uint32_t version) const noexcept { version_.store(version, std::memory_order_relaxed); }
  /// Set when an in-place op was recorded for one tensor on this storage: the history of all other tensors on it is
  /// stale.
  bool tracked() const noexcept { return tracked_; }
  void set_tracked(bool on) const noexcept { tracked_ = on; }
  /// Set when a captured step uses this storage: moving or freezing its tensors then calls note_step_change().
  bool watched() const noexcept { return watched_.load(std::memory_order_relaxed); }
  void watch() const noexcept { watched_.store(true, std::memory_order_relaxed); }
  /// Set when a step under recording made this storage.
  bool recorded() const noexcept { return recorded_.load(std::memory_order_relaxed); }
  void set_recorded(bool on) const noexcept { recorded_.store(on, std::memory_order_relaxed); }
  /// Whether a leaf that requires a gradient has its elements here. Leaves are counted, so this ends when the last of
  /// them is frozen, moved to other memory, or destroyed.
  bool holds_leaf() const noexcept { return leaves_.load(std::memory_order_relaxed) > 0; }
  void add_leaf() const noexcept { leaves_.fetch_add(1, std::memory_order_relaxed); }
  /// For GPU memory: whether it was allocated on a stream other than the default one.
  bool on_own_stream() const noexcept { return own_stream_; }
  /// For GPU memory: records a use by the calling thread's current stream, which may differ from the allocating stream.
  void note_stream() const;
  /// For GPU memory owned by this storage: changes its category in the statistics.
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
  bool adopted_ = false;  // the deleter is stored after the header
  bool alias_ = false;    // an alias of the parent for another device
  mutable bool foreign_ = false;
  mutable std::atomic<std::uint32_t> leaves_{0};
  Device device_;
  std::byte* data_;
  std::size_t bytes_;
  core::Ref<Storage> parent_;
  CudaBlock* cuda_block_ = nullptr;  // the GPU memory that this storage owns
  mutable StorageGuard* guard_ = nullptr;
};

}  // namespace tandem::inline v0::detail
