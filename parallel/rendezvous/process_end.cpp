#include <tandem/parallel/rendezvous/process_end.h>

#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tandem::inline v0::parallel {

namespace {

// The kernel's struct pidfd_info, which Debian 12's headers lack: its first version, of 64 bytes.
struct PidfdInfo {
  std::uint64_t mask = 0;
  std::uint64_t cgroup = 0;
  std::uint32_t ids[11] = {};
  std::int32_t exit_code = 0;
};
static_assert(sizeof(PidfdInfo) == 64);

constexpr std::uint64_t kInfoExit = 1U << 3U;                   // PIDFD_INFO_EXIT
constexpr unsigned long kGetInfo = _IOWR(0xFF, 11, PidfdInfo);  // PIDFD_GET_INFO

}  // namespace

ProcessEnd::ProcessEnd(std::int64_t pid) : pidfd_(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))) {
  PidfdInfo info{.mask = kInfoExit};
  if (pidfd_.get() >= 0 && ::ioctl(pidfd_.get(), kGetInfo, &info) != 0) {
    pidfd_.close();
  }
}

std::optional<int> ProcessEnd::status() const {
  PidfdInfo info{.mask = kInfoExit};
  const bool known = can_tell() && ::ioctl(pidfd_.get(), kGetInfo, &info) == 0 && (info.mask & kInfoExit) != 0;
  return known ? std::optional<int>(info.exit_code) : std::nullopt;
}

}  // namespace tandem::inline v0::parallel
