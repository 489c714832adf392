#include "shadow.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace emulated_gpu::detail {

namespace {

constexpr std::size_t kWord = 4;
constexpr Time kStrongRead = Time{1} << 31;

Time time_of(const Record& record) { return record.time & ~kStrongRead; }
bool is_strong(const Record& record) { return (record.time & kStrongRead) != 0; }

void start(Cell& cell, std::uint32_t stamp) {
  cell = Cell{};
  cell.stamp = stamp & 0x7FFFFFFFU;
}

class Check {
 public:
  Check(Access access, const Record& record, const BlockClock& clock)
      : access_(access), record_(record), clock_(clock) {}

  Conflict touch(Cell& cell, std::uint32_t stamp) const {
    if (cell.stamp != stamp) {
      start(cell, stamp);
    } else if (seen(cell)) {
      return {};
    }
    if (conflicts(cell.write)) {
      return {Access::kWrite, cell.write};
    }
    const bool writes = access_ == Access::kWrite || access_ == Access::kStrongWrite;
    const bool strong = access_ == Access::kStrongRead || access_ == Access::kStrongWrite;
    if (writes) {
      for (const Record& read : cell.reads) {
        if (!(strong && is_strong(read)) && conflicts(read)) {
          return {is_strong(read) ? Access::kStrongRead : Access::kRead, read};
        }
      }
    }
    if (!strong && conflicts(cell.strong_write)) {
      return {Access::kStrongWrite, cell.strong_write};
    }
    insert(cell);
    return {};
  }

 private:
  const Access access_;
  const Record record_;
  const BlockClock& clock_;

  // Whether this thread has done the same since it last met others. A write since then would have conflicted with it.
  bool seen(const Cell& cell) const {
    const auto is_mine = [this](const Record& record) {
      return record.time == record_.time && record.who == record_.who;
    };
    switch (access_) {
      case Access::kRead: return std::any_of(cell.reads.begin(), cell.reads.end(), is_mine);
      case Access::kWrite: return is_mine(cell.write) && cell.reads[0].time == 0 && cell.strong_write.time == 0;
      default: return false;
    }
  }

  bool conflicts(const Record& other) const {
    return other.time != 0 && !clock_.before(other.who, time_of(other), record_.who.thread());
  }

  void insert(Cell& cell) const {
    if (access_ == Access::kWrite) {
      cell.write = record_;
      cell.reads = {};
      cell.strong_write = {};
      return;
    }
    if (access_ == Access::kStrongWrite) {
      cell.strong_write = record_;
      return;
    }
    Record record = record_;
    if (access_ == Access::kStrongRead) {
      const auto says_more = [&](const Record& read) { return read.time == record.time && read.who == record.who; };
      if (std::any_of(cell.reads.begin(), cell.reads.end(), says_more)) {
        return;  // a plain read conflicts with more accesses
      }
      record.time |= kStrongRead;
    }
    for (Record& slot : cell.reads) {
      if (slot.time == 0 || clock_.before(slot.who, time_of(slot), record.who.thread())) {
        slot = record;
        return;
      }
    }
    thread_local std::uint32_t random = 1;
    random = random * 1664525 + 1013904223;
    cell.reads[(random >> 16) % cell.reads.size()] = record;
  }
};

}  // namespace

// Most of the cells are never touched, and take no memory.
Shadow::Shadow(std::size_t size) : capacity_((size + kWord - 1) / kWord * kWord + kWord) {
  void* memory = mmap(nullptr, capacity_ * (sizeof(Cell) + sizeof(Cell) / kWord), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    throw std::bad_alloc();
  }
  cells_ = static_cast<Cell*>(memory);
}

Shadow::~Shadow() { munmap(cells_, capacity_ * (sizeof(Cell) + sizeof(Cell) / kWord)); }

void Shadow::cover(const void* begin, std::size_t size) {
  begin_ = static_cast<const char*>(begin);
  size_ = size;
}

Cell& Shadow::byte_cell(std::size_t offset) const { return cells_[capacity_ / kWord + offset]; }

Conflict Shadow::touch(const void* address, std::size_t size, std::uint32_t stamp, Access access, const Record& record,
                       const BlockClock& clock) {
  const Check check(access, record, clock);
  const auto first = static_cast<std::size_t>(static_cast<const char*>(address) - begin_);
  const std::size_t end = std::min(first + size, size_);
  for (std::size_t word = first / kWord; word * kWord < end; ++word) {
    Cell& cell = cells_[word];
    const std::size_t from = std::max(first, word * kWord);
    const std::size_t to = std::min(end, (word + 1) * kWord);
    const bool all = to - from == kWord;
    const bool split = cell.stamp == stamp && cell.split != 0;
    if (all && !split) {
      if (const Conflict found = check.touch(cell, stamp); found.record.time != 0) {
        return found;
      }
      continue;
    }
    if (!split) {
      if (cell.stamp != stamp) {
        start(cell, stamp);
      }
      std::fill_n(&byte_cell(word * kWord), kWord, cell);
      cell.split = 1;
    }
    for (std::size_t byte = from; byte < to; ++byte) {
      if (const Conflict found = check.touch(byte_cell(byte), stamp); found.record.time != 0) {
        return found;
      }
    }
    if (all && access == Access::kWrite) {
      cell = byte_cell(from);
    }
  }
  return {};
}

}  // namespace emulated_gpu::detail
