#include <tandem/core/cores.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#endif

namespace tandem::inline v0::core {

namespace {

// The first line of a file, or an empty string if it cannot be read.
std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The path of this process's control group below /sys/fs/cgroup, for example "/user.slice/a", from the line "0::PATH".
std::string control_group() {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("0::")) {
      return line.substr(3);
    }
  }
  return "";
}

// The smallest limit of the group and of the groups around it; 0 if none has a limit.
int cores_of_control_groups() {
  int least = 0;
  const auto limit = [&](int cores) { least = least == 0 || (cores != 0 && cores < least) ? cores : least; };
  for (std::string group = control_group(); group.starts_with('/'); group.erase(group.rfind('/'))) {
    limit(cores_of_quota(first_line("/sys/fs/cgroup" + group + "/cpu.max")));
  }
  limit(cores_of_quota(first_line("/sys/fs/cgroup/cpu.max")));
  const std::string v1 = "/sys/fs/cgroup/cpu/cpu.cfs_";
  limit(cores_of_quota(first_line(v1 + "quota_us") + " " + first_line(v1 + "period_us")));
  return least;
}

}  // namespace

std::vector<int> cores_of_affinity_mask() {
  std::vector<int> cores;
#if defined(__linux__)
  for (std::size_t sets = 1; sets <= 64; sets *= 2) {  // the kernel rejects a mask smaller than its number of cores
    std::vector<cpu_set_t> mask(sets);
    if (sched_getaffinity(0, sets * sizeof(cpu_set_t), mask.data()) == 0) {
      for (std::size_t core = 0; core < sets * CPU_SETSIZE; ++core) {
        if (CPU_ISSET_S(core, sets * sizeof(cpu_set_t), mask.data())) {
          cores.push_back(static_cast<int>(core));
        }
      }
      break;
    }
  }
#endif
  return cores;
}

int cores_of_quota(std::string_view text) {
  const auto number = [&] {
    std::int64_t value = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
    text.remove_prefix(std::min<std::size_t>(text.size(), text.starts_with(' ') ? 1 : 0));
    return error == std::errc() ? value : 0;
  };
  const std::int64_t quota = number();
  const std::int64_t period = number();
  if (quota <= 0 || period <= 0) {
    return 0;  // "max", -1, or a missing file
  }
  return static_cast<int>(std::min<std::int64_t>((quota - 1) / period + 1, 1 << 20));
}

int available_cores() {
  const auto bound = static_cast<int>(cores_of_affinity_mask().size());
  const int cores = std::max(1, bound > 0 ? bound : static_cast<int>(std::thread::hardware_concurrency()));
  const int limit = cores_of_control_groups();
  return limit == 0 ? cores : std::min(cores, limit);
}

}  // namespace tandem::inline v0::core
