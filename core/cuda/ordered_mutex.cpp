#include <tandem/core/cuda/ordered_mutex.h>

#include <bit>
#include <cstdio>
#include <cstdlib>

namespace tandem::inline v0::cuda {

#if !defined(NDEBUG) || defined(TANDEM_CHECK_LOCKS)

namespace {

constexpr const char* kNames[] = {"tuning",       "capture",    "nccl_backend",   "nccl_communicator", "library_made",
                                  "library",      "plan_store", "allocator_made", "allocator",         "gpu_made",
                                  "streams_made", "streams",    "memory"};

constinit thread_local std::uint32_t held = 0;  // bit p: this thread holds a mutex of place p

constexpr std::uint32_t bit_of(LockPlace place) noexcept { return std::uint32_t{1} << static_cast<int>(place); }

}  // namespace

void note_lock(LockPlace place) noexcept {
  if (held >= bit_of(place)) {
    const auto last = static_cast<std::size_t>(std::bit_width(held)) - 1;
    std::fprintf(stderr,
                 "tandem: a thread locks the mutex '%s' while it holds '%s', which LockPlace puts after it (or beside "
                 "it); another thread may do both in order, and then neither goes on\n",
                 kNames[static_cast<std::size_t>(place)], kNames[last]);
    std::abort();
  }
  held |= bit_of(place);
}

void note_unlock(LockPlace place) noexcept { held &= ~bit_of(place); }

#else

void note_lock(LockPlace) noexcept {}
void note_unlock(LockPlace) noexcept {}

#endif

}  // namespace tandem::inline v0::cuda
