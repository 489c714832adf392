#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <tandem/core/export.h>

namespace tandem::inline v0::kernels {

/// Workspace for the duration of one kernel call. It is a stack of bytes that grows as needed and is kept between
/// calls, so a warm kernel never asks the system for memory. Used by one thread at a time.
class TANDEM_API ScratchArena {
 public:
  static constexpr std::size_t kCeiling = std::size_t{256} << 20;

  /// Allocates 64-byte aligned memory, valid until the ScratchScope around it ends. Throws OutOfMemory above the
  /// ceiling.
  void* allocate(std::size_t bytes);

  template <class T>
  T* allocate_array(std::size_t count) {
    return static_cast<T*>(allocate(count * sizeof(T)));
  }

 private:
  friend class ScratchScope;
  struct Free {
    void operator()(std::byte* memory) const noexcept;
  };
  struct Block {
    std::unique_ptr<std::byte, Free> memory;
    std::size_t bytes = 0;
  };
  // Makes memory that is not handed out untouchable under AddressSanitizer.
#if defined(__SANITIZE_ADDRESS__)
  void close_rest() noexcept;
#else
  void close_rest() noexcept {}
#endif

  std::vector<Block> blocks_;  // never moved; a block that is too small is followed by a larger one
  std::size_t block_ = 0;
  std::size_t used_ = 0;
  std::size_t total_ = 0;
};

/// Gives back, at its end, all memory allocated since its start.
class ScratchScope {
 public:
  explicit ScratchScope(ScratchArena& arena) noexcept : arena_(arena), block_(arena.block_), used_(arena.used_) {}
  ~ScratchScope() {
    arena_.block_ = block_;
    arena_.used_ = used_;
    arena_.close_rest();
  }
  ScratchScope(const ScratchScope&) = delete;
  ScratchScope& operator=(const ScratchScope&) = delete;

 private:
  ScratchArena& arena_;
  std::size_t block_;
  std::size_t used_;
};

}  // namespace tandem::inline v0::kernels
