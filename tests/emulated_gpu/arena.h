#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>

// The memory of one emulated GPU: a range of addresses of its own, which nobody may touch unless it is open.

namespace emulated_gpu::detail {

struct Allocation {
  std::size_t size = 0;      // as asked for
  std::size_t reserved = 0;  // with what alignment and the red zone behind it take
  void* pool = nullptr;      // the memory pool it came from, if it did
  bool freeing = false;      // freed in the order of a stream that has not come to it
};

class Arena {
 public:
  Arena(int device, std::size_t size);

  // First fit; nullptr when nothing fits. What is in it, spoil() decides.
  void* allocate(std::size_t size, void* pool);
  // The address of an allocation.
  void release(void* address);
  // Fills an allocation with garbage, when its stream comes to it.
  void spoil(void* address);

  // Opens and closes nest, over all OS threads.
  void open();
  void close();

  bool contains(const void* address) const;
  // The allocation that all of [address, address + size) lies in, nullptr otherwise.
  Allocation* find(const void* address, std::size_t size = 0);
  // Where it begins; only after find() has found it.
  void* begin_of(const void* address) const;
  // Says what is at an address of the arena.
  std::string describe(const void* address) const;

  std::size_t size() const { return size_; }
  std::size_t reserved() const { return reserved_; }
  std::size_t allocated() const { return allocated_; }

 private:
  const int device_;
  const std::size_t size_;
  char* base_;
  std::size_t used_ = 0;  // up to the end of the last allocation: what open() opens
  std::size_t reserved_ = 0;
  std::size_t allocated_ = 0;
  int opened_ = 0;
  std::map<char*, Allocation> allocations_;

  void use(std::size_t end);
  void check_red_zone(const char* begin, const Allocation& allocation) const;
};

}  // namespace emulated_gpu::detail
