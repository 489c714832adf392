#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// Internal: memory that the ranks of one host see.

namespace tandem::inline v0::parallel {

/// A part for each rank, which that rank writes and all read. It has no name in any file system: nothing is left
/// behind, however the ranks end.
class SharedMemory {
 public:
  /// Where a part is, and how to know that it is the one that is meant.
  struct Address {
    std::int64_t pid = 0;
    std::int32_t descriptor = -1;
    std::uint32_t bytes = 0;
    std::array<char, 64> host{};    // the network address that its rank listens at
    std::array<char, 64> cookie{};  // what the part begins with
  };

  /// Makes this rank's part, of that many bytes. Throws IoError where the system has none.
  SharedMemory(int rank, int size, const std::string& host, std::size_t bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  const Address& address() const noexcept { return address_; }
  /// False: it is on another host, or this process may not see it.
  bool open(int rank, const Address& address);
  /// All ranks have opened it: from here on nobody else can.
  void seal() noexcept;
  /// Page-aligned.
  std::byte* part(int rank) const noexcept { return parts_[static_cast<std::size_t>(rank)] + kHead; }

  /// Once more. What this rank wrote before is seen by who waits for it.
  void arrive() noexcept;
  /// Until that rank has arrived as often as this one, awake as long as `patience` lasts and nobody else wants the
  /// core; false once the deadline has passed.
  bool wait_for(int rank, std::chrono::steady_clock::time_point deadline,
                std::chrono::steady_clock::duration patience) const noexcept;
  /// For the others, at the start of something that all ranks do: up to kNote bytes, there until the next but one.
  std::byte* own_note() noexcept;
  /// That of another rank, after both have arrived.
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
