#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

// Internal: memory shared by the ranks of one host.
//
// Each rank creates a part with memfd_create() and mails the others its process id and descriptor. The others open the
// part through /proc, compare its size and a random mark in it with the mail, and map it. Once all ranks have done so,
// the descriptors are closed. Only mappings remain: they disappear with the last process, however the ranks end.

namespace tandem::inline v0::parallel {

/// One part for each rank of this host, which that rank writes and all read. Ranks are numbered within the host.
class SharedMemory {
 public:
  /// The location of a part, and the marks that identify it.
  struct Address {
    std::int64_t pid = 0;
    std::int32_t descriptor = -1;
    std::uint32_t bytes = 0;
    std::array<char, 64> cookie{};  // random bytes at the start of the part
  };

  /// Creates this rank's part with `bytes` bytes. Throws IoError if the system has no memory for it.
  SharedMemory(int rank, int size, std::size_t bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  const Address& address() const noexcept { return address_; }
  /// Returns false if this process may not access the part, or sees none there.
  bool open(int rank, const Address& address);
  /// All ranks have opened the part: from now on no other process can.
  void seal() noexcept;
  /// The memory of a rank's part, page-aligned.
  std::byte* part(int rank) const noexcept { return parts_[static_cast<std::size_t>(rank)] + kHead; }

  /// Increases this rank's number of arrivals. Ranks that wait for it see all of its earlier writes.
  void arrive() noexcept;
  /// Whether that rank has arrived as often as this one.
  bool has_come(int rank) const noexcept;
  /// Waits until has_come(rank). Stays awake for `patience` as long as no other thread wants the core. Returns false at
  /// the deadline.
  bool wait_for(int rank, std::chrono::steady_clock::time_point deadline,
                std::chrono::steady_clock::duration patience) const noexcept;
  /// This rank's note for the others, written before an operation of all ranks: up to kNote bytes, valid until the
  /// operation after the next one.
  std::byte* own_note() noexcept;
  /// Another rank's note, valid after both ranks have arrived.
  const std::byte* note(int rank) const noexcept;
  static constexpr std::size_t kNote = 1024;

 private:
  struct Head;
  static constexpr std::size_t kHead = 4096;

  Head& head(int rank) const noexcept { return *reinterpret_cast<Head*>(parts_[static_cast<std::size_t>(rank)]); }
  std::byte* map(int descriptor) const noexcept;

  int rank_;
  std::size_t bytes_;
  std::uint64_t notes_ = 0;
  Address address_;
  std::vector<std::byte*> parts_;
};

}  // namespace tandem::inline v0::parallel
