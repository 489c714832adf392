#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <string>

// The memory of one emulated GPU: an address range of its own that is inaccessible unless it is open. Where the
// processor has protection keys, a range is open to the thread that opened it; changing the protection of its pages for
// each kernel would take most of the time of the tests.

namespace emulated_gpu::detail {

struct Allocation {
  std::size_t size = 0;      // requested size
  std::size_t reserved = 0;  // including alignment and the red zone after it
  void* pool = nullptr;      // the memory pool that it came from, if any
  bool freeing = false;      // its free is queued on a stream
};

// How often a thread has opened the range of each protection key.
using OpenRanges = std::array<int, 16>;
// Those of the calling thread; none without protection keys, where ranges are open to all threads.
const OpenRanges& open_ranges();
// Opens the same ranges to the calling thread, which works for another one, and closes all others.
void set_open_ranges(const OpenRanges& ranges);

class Arena {
 public:
  Arena(int device, std::size_t size);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // First fit; nullptr if nothing fits. The content is undefined until spoil().
  void* allocate(std::size_t size, void* pool);
  // Frees the allocation at this address.
  void release(void* address);
  // Fills an allocation with garbage. Called when the stream reaches the allocation.
  void spoil(void* address);

  // Calls nest. Without protection keys they are counted over all OS threads.
  void open();
  void close();

  bool contains(const void* address) const;
  // Returns the allocation that contains [address, address + size), or nullptr.
  Allocation* find(const void* address, std::size_t size = 0);
  // The start of that allocation. Call it only after find() has found one.
  void* begin_of(const void* address) const;
  // Describes an address of the arena.
  std::string describe(const void* address) const;

  const void* base() const { return base_; }
  std::size_t size() const { return size_; }
  std::size_t reserved() const { return reserved_; }
  std::size_t allocated() const { return allocated_; }

 private:
  const int device_;
  const std::size_t size_;
  char* base_;
  std::size_t used_ = 0;  // end of the last allocation: open() opens this much
  std::size_t reserved_ = 0;
  std::size_t allocated_ = 0;
  int opened_ = 0;
  const int key_;  // that protects the range; -1 without protection keys
  std::map<char*, Allocation> allocations_;

  void use(std::size_t end);
  void protect(char* begin, std::size_t size, int access) const;
  void check_red_zone(const char* begin, const Allocation& allocation) const;
};

}  // namespace emulated_gpu::detail
