#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "clock.h"

// The shadow remembers which threads touched each byte of a range of memory last.

namespace emulated_gpu::detail {

// A strong access is one that may meet others of its kind: an atomic function, or an access to a volatile.
enum class Access { kRead, kWrite, kStrongRead, kStrongWrite };

struct Record {
  Who who;
  Time time = 0;          // 0: there is no record
  std::int32_t site = 0;  // the address of the code, from an anchor within the program
};

// The accesses to four bytes, or to one, that a later access may conflict with. Everything else is ordered before
// these: a write, and since then the last strong write, which has seen those before it, and three of the reads. If more
// are not ordered, three random ones stay.
struct Cell {
  std::uint32_t stamp : 31 = 0;  // the launch or the block that it belongs to
  std::uint32_t split : 1 = 0;   // the four bytes have cells of their own
  Record write;
  Record strong_write;
  std::array<Record, 3> reads;  // a strong one has the upper bit of its time set
};
static_assert(sizeof(Cell) == 64);

struct Conflict {
  Access access{};
  Record record;  // no conflict if its time is 0
};

class Shadow {
 public:
  // At most this many bytes of memory.
  explicit Shadow(std::size_t size);
  ~Shadow();
  Shadow(const Shadow&) = delete;
  Shadow& operator=(const Shadow&) = delete;

  // The range whose shadow it is from now on; earlier records count only for the stamp they were made with.
  void cover(const void* begin, std::size_t size);
  bool contains(const void* address) const {
    return static_cast<std::size_t>(static_cast<const char*>(address) - begin_) < size_;
  }
  const char* begin() const { return begin_; }

  // Records an access, unless it conflicts with an earlier one that has this stamp.
  Conflict touch(const void* address, std::size_t size, std::uint32_t stamp, Access access, const Record& record,
                 const BlockClock& clock);

 private:
  const std::size_t capacity_;
  const char* begin_ = nullptr;
  std::size_t size_ = 0;
  Cell* cells_;  // of words, followed by those of single bytes
  Cell& byte_cell(std::size_t offset) const;
};

}  // namespace emulated_gpu::detail
