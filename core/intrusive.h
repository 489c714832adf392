#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace tandem::inline v0::core {

/// Base class of objects that count their own owners: one allocation per object, handles of one word. The count starts
/// at 0.
class RefCounted {
 public:
  RefCounted() noexcept = default;
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;

  /// Adds one owner.
  void retain() const noexcept { owners_.fetch_add(1, std::memory_order_relaxed); }
  /// Removes one owner. Returns true for the last one, which must then destroy the object.
  bool drop() const noexcept {
    // A sole owner needs no read-modify-write: no other thread can change the count.
    if (owners_.load(std::memory_order_acquire) == 1) {
      return true;
    }
    return owners_.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }
  /// Whether the object has exactly one owner.
  bool is_unique() const noexcept { return owners_.load(std::memory_order_acquire) == 1; }

 protected:
  ~RefCounted() = default;

 private:
  mutable std::atomic<std::uint32_t> owners_{0};
};

/// An owning handle. T decides how it is destroyed: `static void T::destroy(const T*)`.
template <class T>
class Ref {
 public:
  constexpr Ref() noexcept = default;
  constexpr Ref(std::nullptr_t) noexcept {}
  explicit Ref(T* object) noexcept : object_(object) {
    if (object_ != nullptr) {
      object_->retain();
    }
  }
  Ref(const Ref& other) noexcept : Ref(other.object_) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  template <class U>
    requires std::is_convertible_v<U*, T*>
  Ref(Ref<U> other) noexcept : object_(other.release()) {}
  Ref& operator=(const Ref& other) noexcept {  // NOLINT(bugprone-unhandled-self-assignment): a copy is swapped
    Ref(other).swap(*this);
    return *this;
  }
  Ref& operator=(Ref&& other) noexcept {
    Ref(std::move(other)).swap(*this);
    return *this;
  }
  ~Ref() { reset(); }

  /// Gives up ownership; the handle is null afterward.
  void reset() noexcept {
    if (T* object = std::exchange(object_, nullptr); object != nullptr && object->drop()) {
      T::destroy(object);
    }
  }
  /// Exchanges the objects.
  void swap(Ref& other) noexcept { std::swap(object_, other.object_); }
  /// Gives up the pointer without changing the count; the caller becomes the owner.
  T* release() noexcept { return std::exchange(object_, nullptr); }
  /// Takes over a pointer whose ownership was counted before.
  static Ref adopt(T* object) noexcept {
    Ref ref;
    ref.object_ = object;
    return ref;
  }

  /// The object, or null.
  T* get() const noexcept { return object_; }
  /// Accesses a member; the handle must not be null.
  T* operator->() const noexcept { return object_; }
  /// The object; the handle must not be null.
  T& operator*() const noexcept { return *object_; }
  /// Whether there is an object.
  explicit operator bool() const noexcept { return object_ != nullptr; }
  /// Whether both handles refer to one object.
  friend bool operator==(const Ref& a, const Ref& b) noexcept { return a.object_ == b.object_; }

 private:
  T* object_ = nullptr;
};

}  // namespace tandem::inline v0::core
