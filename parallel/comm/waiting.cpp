#include <tandem/parallel/comm/waiting.h>

#include <sys/syscall.h>
#include <unistd.h>

namespace tandem::inline v0::parallel {

namespace {

constexpr std::uint64_t kSlice = 100'000;  // ns; Linux's minimum

// Linux's struct sched_attr, which older C libraries do not declare.
struct Attributes {
  std::uint32_t size = sizeof(Attributes);
  std::uint32_t policy = 0;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime = 0;
  std::uint64_t deadline = 0;
  std::uint64_t period = 0;
};

// Sets the slice and returns the previous one. Leaves threads with another policy than the default unchanged.
std::uint64_t set_slice(std::uint64_t slice) noexcept {
  Attributes attributes;
  if (::syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0 || attributes.policy != 0) {
    return 0;
  }
  const std::uint64_t before = attributes.runtime;
  attributes.runtime = slice;
  ::syscall(SYS_sched_setattr, 0, &attributes, 0);
  return before;
}

}  // namespace

ShortSlice::ShortSlice() noexcept : before_(set_slice(kSlice)) {}

ShortSlice::~ShortSlice() {
  if (before_ != 0) {
    set_slice(before_);
  }
}

}  // namespace tandem::inline v0::parallel
