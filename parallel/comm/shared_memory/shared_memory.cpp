#include <tandem/parallel/comm/shared_memory/shared_memory.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <limits>
#include <new>
#include <string_view>
#include <type_traits>
#include <utility>

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fmt/format.h>

#include <tandem/core/check.h>
#include <tandem/core/system_limits.h>
#include <tandem/parallel/comm/combine.h>
#include <tandem/parallel/comm/waiting.h>
#include <tandem/parallel/rendezvous/job_token.h>

namespace tandem::inline v0::parallel {

namespace {

using Clock = std::chrono::steady_clock;
using Kind = CollectiveKind;

constexpr std::string_view kLink = "/memfd:tandem (deleted)";

constexpr std::size_t kPiece = 1 << 20;  // bytes
// The first piece is being written, the second combined, and the third read.
constexpr std::size_t kPieces = 3;
constexpr std::chrono::milliseconds kMemoryLook(5);
constexpr int kLooks = 10;  // after this many looks the wait counts as long
static_assert(sizeof(Collective) <= SharedMemory::kNote && std::is_trivially_copyable_v<Collective>);

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t value, Clock::duration timeout) {
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(timeout).count();
  const timespec time{.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, value, &time, nullptr, 0);
}

void futex_wake(std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, std::numeric_limits<int>::max(), nullptr, nullptr, 0);
}

}  // namespace

// The header before a rank's part.
struct SharedMemory::Head {
  std::array<char, 64> cookie;
  alignas(64) std::atomic<std::uint32_t> arrived;  // number of arrivals
  std::atomic<std::uint32_t> sleepers;             // number of threads that wait for a change of `arrived`
  alignas(64) std::array<std::array<std::byte, kNote>, 2> notes;
};

SharedMemory::SharedMemory(int rank, int size, std::size_t bytes)
    : rank_(rank), bytes_(kHead + bytes), parts_(static_cast<std::size_t>(size), nullptr) {
  // Writing beyond this limit would also raise a signal.
  rlimit limit{};
  check<IoError>(::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur >= bytes_,
                 "no memory to share: a file may have {} bytes, and {} are needed (ulimit -f)", limit.rlim_cur, bytes_);
  address_.descriptor = ::memfd_create("tandem", MFD_CLOEXEC);
  check<IoError>(address_.descriptor >= 0, "no memory to share: {}", core::system_message(errno));
  // Reserve all pages now: a page missing later would raise a signal.
  const int error = ::posix_fallocate(address_.descriptor, 0, static_cast<off_t>(bytes_));
  std::byte* own = error == 0 ? map(address_.descriptor) : nullptr;
  if (own == nullptr) {
    seal();
    fail<IoError>("no memory to share: {}", core::system_message(error != 0 ? error : errno));
  }
  parts_[static_cast<std::size_t>(rank)] = own;
  address_.pid = ::getpid();
  address_.bytes = static_cast<std::uint32_t>(bytes_);
  JobToken::generate().hex().copy(address_.cookie.data(), address_.cookie.size());
  static_assert(sizeof(Head) <= kHead && std::atomic<std::uint32_t>::is_always_lock_free);
  new (own) Head{};
  head(rank).cookie = address_.cookie;
}

SharedMemory::~SharedMemory() {
  seal();
  for (std::byte* part : parts_) {
    if (part != nullptr) {
      ::munmap(part, bytes_);
    }
  }
}

void SharedMemory::seal() noexcept {
  if (const int descriptor = std::exchange(address_.descriptor, -1); descriptor >= 0) {
    ::close(descriptor);
  }
}

std::byte* SharedMemory::map(int descriptor) const noexcept {
  void* memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

// In a container another process may have that pid: check that the file's name is ours before opening it.
bool SharedMemory::open(int rank, const Address& address) {
  if (address.descriptor < 0 || address.bytes != bytes_) {
    return false;
  }
  const std::string path = fmt::format("/proc/{}/fd/{}", address.pid, address.descriptor);
  std::array<char, 64> link{};
  const ssize_t length = ::readlink(path.c_str(), link.data(), link.size());
  if (length < 0 || std::string_view(link.data(), static_cast<std::size_t>(length)) != kLink) {
    return false;
  }
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) {
    return false;
  }
  struct ::stat status{};
  const bool is_whole = ::fstat(descriptor, &status) == 0 && status.st_size == static_cast<off_t>(bytes_);
  std::byte* part = is_whole ? map(descriptor) : nullptr;
  ::close(descriptor);
  if (part != nullptr && reinterpret_cast<const Head*>(part)->cookie != address.cookie) {
    ::munmap(part, bytes_);
    return false;
  }
  parts_[static_cast<std::size_t>(rank)] = part;
  return part != nullptr;
}

// A sleeper counts itself before its last look, and arrive() reads the count after the change, so at least one of the
// two sees the other.
void SharedMemory::arrive() noexcept {
  Head& own = head(rank_);
  own.arrived.fetch_add(1);
  if (own.sleepers.load() > 0) {
    futex_wake(own.arrived);
  }
}

bool SharedMemory::has_come(int rank) const noexcept {
  return static_cast<std::int32_t>(head(rank).arrived.load() - head(rank_).arrived.load()) >= 0;
}

bool SharedMemory::wait_for(int rank, Clock::time_point deadline, Clock::duration patience) const noexcept {
  if (wait_awake(patience, [&] { return has_come(rank); })) {
    return true;
  }
  Head& other = head(rank);
  other.sleepers.fetch_add(1);
  for (;;) {
    const std::uint32_t seen = other.arrived.load();
    const auto left = deadline - Clock::now();
    if (has_come(rank) || left <= Clock::duration(0)) {
      break;
    }
    futex_wait(other.arrived, seen, left);
  }
  other.sleepers.fetch_sub(1);
  return has_come(rank);
}

std::byte* SharedMemory::own_note() noexcept { return head(rank_).notes[++notes_ % 2].data(); }

const std::byte* SharedMemory::note(int rank) const noexcept { return head(rank).notes[notes_ % 2].data(); }

SharedGroup::SharedGroup(int rank, int size)
    : rank_(rank),
      size_(size),
      memory_(rank, size, kPieces * kPiece),
      calls_(static_cast<std::size_t>(size)),
      from_(static_cast<std::size_t>(size)) {}

void SharedGroup::meet(const CallTime& time, LookAfter look_after) {
  memory_.arrive();
  const auto awake = patience_of(time, size_);
  for (int peer = 0; peer < size_; ++peer) {
    for (int looks = 1; peer != rank_ && !memory_.wait_for(peer, Clock::now() + kMemoryLook, awake); ++looks) {
      look_after(looks == kLooks);
    }
  }
}

void SharedGroup::read_notes(std::span<Collective> all) const {
  for (int r = 0; r < size_; ++r) {
    std::memcpy(&all[static_cast<std::size_t>(r)], memory_.note(r), sizeof(Collective));
  }
}

void SharedGroup::exchange(const Collective& mine, std::span<Collective> all, const CallTime& time,
                           LookAfter look_after) {
  std::memcpy(memory_.own_note(), &mine, sizeof mine);
  meet(time, look_after);
  read_notes(all);
}

std::byte* SharedGroup::place(int rank, std::size_t piece) const {
  return memory_.part(rank) + (pieces_ + piece) % kPieces * kPiece;
}

bool SharedGroup::takes(CollectiveKind kind) noexcept {
  return kind == Kind::all_reduce || kind == Kind::reduce_scatter || kind == Kind::all_gather;
}

std::int64_t SharedGroup::elements_of_piece(const Collective& call) const {
  const auto all = static_cast<std::int64_t>(kPiece / item_size(call.dtype));
  return call.kind == Kind::all_reduce ? all : all / size_;
}

SharedGroup::SliceOfPiece SharedGroup::slice(const Collective& call, std::int64_t numel, int rank,
                                             std::size_t piece) const {
  const std::size_t item = item_size(call.dtype);
  const std::int64_t most = elements_of_piece(call);
  const auto index = static_cast<std::int64_t>(piece);
  if (call.kind == Kind::all_reduce) {
    const Slice slice = slice_of(rank, size_, std::min(most, numel - index * most));
    const std::size_t in_place = static_cast<std::size_t>(slice.begin) * item;
    return {piece * kPiece + in_place, in_place, slice.count};
  }
  return {static_cast<std::size_t>(rank * numel + index * most) * item, static_cast<std::size_t>(rank * most) * item,
          std::min(most, numel - index * most)};
}

// The last round reads other places than the next call writes first.
void SharedGroup::run(const Collective& call, const Buffers& buffers, const CallTime& time, LookAfter look_after,
                      Compare compare) {
  const auto item = item_size(call.dtype);
  const bool gathers = call.kind == Kind::all_gather;
  const bool scatters = call.kind == Kind::reduce_scatter;
  const std::int64_t of_piece = elements_of_piece(call);
  const auto pieces = static_cast<std::size_t>((buffers.numel + of_piece - 1) / of_piece);
  const std::size_t to_take = gathers ? 1 : 2;  // rounds until a piece is read
  const std::size_t rounds = pieces + (scatters ? 1 : to_take);
  const auto* in = static_cast<const std::byte*>(buffers.in);
  auto* out = static_cast<std::byte*>(buffers.out);
  const auto copy = [&](void* to, const void* from, std::int64_t count) {
    if (to != from) {
      std::memcpy(to, from, static_cast<std::size_t>(count) * item);
    }
  };
  // Where this rank's part begins, of which alone an all-gather has `in` and a reduce-scatter `out`.
  const std::size_t own_part = gathers || scatters ? slice(call, buffers.numel, rank_, 0).begin : 0;
  if (call.planned) {
    std::memcpy(memory_.own_note(), &call, sizeof call);
  }
  for (std::size_t round = 0; round < rounds; ++round) {
    for (int r = 0; round < pieces && r < size_; ++r) {
      if (gathers == (r == rank_)) {
        const SliceOfPiece given = slice(call, buffers.numel, r, round);
        copy(place(rank_, round) + given.in_place, in + given.begin - (gathers ? own_part : 0), given.count);
      }
    }
    if (const std::size_t piece = round - 1; round >= 1 && piece < pieces && !gathers) {
      const SliceOfPiece own = slice(call, buffers.numel, rank_, piece);
      for (int r = 0; r < size_; ++r) {
        from_[static_cast<std::size_t>(r)] = r == rank_ ? in + own.begin : place(r, piece) + own.in_place;
      }
      std::byte* const result = out != nullptr ? out + own.begin - (scatters ? own_part : 0) : nullptr;
      const std::array<void*, 2> to{place(rank_, piece) + own.in_place, result};
      combine(call, Device(), from_, std::span(to).subspan(scatters ? 1 : 0, scatters || out == nullptr ? 1 : 2),
              own.count);
    }
    for (int r = 0; round >= to_take && !scatters && out != nullptr && r < size_; ++r) {
      const std::size_t piece = round - to_take;
      const SliceOfPiece theirs = slice(call, buffers.numel, r, piece);
      if (r != rank_) {
        copy(out + theirs.begin, place(r, piece) + theirs.in_place, theirs.count);
      } else if (gathers) {
        copy(out + theirs.begin, in + theirs.begin - own_part, theirs.count);
      }
    }
    if (round + 1 < rounds || round == 0) {
      meet(time, look_after);
    }
    if (round == 0 && call.planned) {
      read_notes(calls_);
      compare(calls_);
    }
  }
  pieces_ += pieces;
}

// Rank 0 writes a piece while the others read the one before.
void SharedGroup::broadcast(void* data, std::size_t bytes, const CallTime& time, LookAfter look_after) {
  const std::size_t pieces = (bytes + kPiece - 1) / kPiece;
  for (std::size_t round = 0; round <= pieces; ++round) {
    const std::size_t piece = rank_ == 0 ? round : round - 1;
    if (piece < pieces) {  // in round 0 the others have none
      std::byte* own = static_cast<std::byte*>(data) + piece * kPiece;
      std::byte* shared = place(0, piece);
      std::memcpy(rank_ == 0 ? shared : own, rank_ == 0 ? own : shared, std::min(kPiece, bytes - piece * kPiece));
    }
    if (round < pieces) {
      meet(time, look_after);
    }
  }
  pieces_ += pieces;
}

}  // namespace tandem::inline v0::parallel
