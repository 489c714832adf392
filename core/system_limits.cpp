#include <tandem/core/system_limits.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <new>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <tandem/core/check.h>
#include <tandem/core/file.h>

namespace tandem::inline v0::core {

namespace {

constexpr std::string_view kNoThread = "no thread for ";
constexpr rlim_t kUsualFiles = 4096;  // a limit on open files that suffices for a rank

struct Limit {
  rlim_t now = RLIM_INFINITY;
  rlim_t most = RLIM_INFINITY;  // what this user may raise it to
};

Limit limit_of(int resource) {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) {
    return {};
  }
  return {limit.rlim_cur, limit.rlim_max};
}

// The file's beginning, or an empty text. Files of the kernel are short.
std::string content_of(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 4096> text{};
  const ssize_t size = file.get() >= 0 ? ::read(file.get(), text.data(), text.size()) : 0;
  return {text.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0))};
}

std::optional<std::uint64_t> number_at(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() ? std::optional(number) : std::nullopt;
}

// The folder of this process's cgroup (version 2) and those of all cgroups around it. In a container the innermost one
// is often mounted as the root.
std::vector<std::string> control_groups() {
  std::vector<std::string> folders;
  const std::string own = content_of("/proc/self/cgroup");
  if (const std::size_t at = own.find("0::/"); at != std::string::npos) {
    std::string path = own.substr(at + 3, own.find('\n', at) - at - 3);
    for (; path.size() > 1; path.erase(path.rfind('/'))) {
      folders.push_back("/sys/fs/cgroup" + path);
    }
  }
  folders.emplace_back("/sys/fs/cgroup");
  return folders;
}

// How much of memory.max, pids.max ... is left in the tightest cgroup, and that maximum.
struct Left {
  std::uint64_t left;
  std::uint64_t maximum;
};
std::optional<Left> left_in_control_groups(const char* controller) {
  std::optional<Left> least;
  for (const std::string& folder : control_groups()) {
    const auto maximum = number_at(content_of(fmt::format("{}/{}.max", folder, controller)));
    const auto used = number_at(content_of(fmt::format("{}/{}.current", folder, controller)));
    if (maximum && used) {
      const Left here{*maximum - std::min(*maximum, *used), *maximum};
      least = !least || here.left < least->left ? here : *least;
    }
  }
  return least;
}

std::uint64_t page_bytes() { return static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)); }

// How to raise a limit that the shell's `ulimit -<option>` shows, in units of `unit`, to `wanted` units.
std::string how_to_raise(const Limit& limit, char option, rlim_t unit, rlim_t wanted, const char* service,
                         const char* container) {
  if (limit.most == RLIM_INFINITY || limit.most > limit.now) {
    const std::string to = limit.most == RLIM_INFINITY && wanted == RLIM_INFINITY
                               ? "unlimited"
                               : fmt::format("{}", std::min(limit.most, wanted) / unit);
    return fmt::format("raise it before the start: ulimit -{} {}", option, to);
  }
  return fmt::format("raise its hard limit: {} of the service, {} of the container, or /etc/security/limits.conf",
                     service, container);
}

std::string about_files() {
  const Limit limit = limit_of(RLIMIT_NOFILE);
  return fmt::format(
      "the process may have {} (ulimit -n); {}", limit.now,
      how_to_raise(limit, 'n', 1, std::max(kUsualFiles, 2 * limit.now), "LimitNOFILE=", "--ulimit nofile="));
}

std::string about_memory();

// A thread also needs addresses for its stack, and the system reports their want with the same code.
std::string about_threads() {
  std::size_t stack = 0;
  pthread_attr_t attributes;
  if (::pthread_getattr_default_np(&attributes) == 0) {
    ::pthread_attr_getstacksize(&attributes, &stack);
    ::pthread_attr_destroy(&attributes);
  }
  if (const auto addresses = free_addresses(); addresses && *addresses < 4 * stack) {
    return fmt::format("a thread takes {} KiB for its stack, and {}", stack / 1024, about_memory());
  }
  if (const auto pids = left_in_control_groups("pids"); pids && pids->left == 0) {
    return fmt::format(
        "the container or service may have {} threads and processes; raise --pids-limit of the container, "
        "or TasksMax= of the service",
        pids->maximum);
  }
  const Limit limit = limit_of(RLIMIT_NPROC);
  if (limit.now == RLIM_INFINITY) {
    return "the system has no room for more threads and processes (/proc/sys/kernel/threads-max)";
  }
  return fmt::format("the user may have {} threads and processes (ulimit -u); {}", limit.now,
                     how_to_raise(limit, 'u', 1, RLIM_INFINITY, "LimitNPROC=", "--ulimit nproc="));
}

std::string about_memory() {
  if (const auto addresses = free_addresses()) {
    const Limit limit = limit_of(RLIMIT_AS);
    return fmt::format("the process may have {} KiB of addresses, of which {} are left (ulimit -v); {}",
                       limit.now / 1024, *addresses / 1024,
                       how_to_raise(limit, 'v', 1024, RLIM_INFINITY, "LimitAS=", "--ulimit as="));
  }
  if (const auto group = left_in_control_groups("memory"); group && group->left <= free_memory()) {
    return fmt::format("the container or service may have {} bytes, of which {} are left (memory.max)", group->maximum,
                       group->left);
  }
  return fmt::format("{} bytes are free", free_memory());
}

}  // namespace

std::string system_message(int error) {
  std::string text = std::generic_category().message(error);
  switch (error) {
    case EMFILE: return fmt::format("{}: {}", text, about_files());
    case ENFILE: return text + ": all files that this machine may have open are in use (/proc/sys/fs/file-max)";
    case EAGAIN: return fmt::format("{}: {}", text, about_threads());
    case ENOMEM: return fmt::format("{}: {}", text, about_memory());
    default: return text;
  }
}

int shortage_in(const std::exception& error) {
  constexpr std::array<int, 4> kShortages{EMFILE, ENFILE, EAGAIN, ENOMEM};
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return ENOMEM;
  }
  if (const auto* const coded = dynamic_cast<const std::system_error*>(&error)) {
    const int code = coded->code().value();
    return std::find(kShortages.begin(), kShortages.end(), code) != kShortages.end() ? code : 0;
  }
  const std::string_view text = error.what();
  for (const int code : kShortages) {
    // Sockets report EAGAIN, too, for other reasons.
    if ((code != EAGAIN || text.starts_with(kNoThread)) &&
        text.find(std::generic_category().message(code)) != std::string_view::npos) {
      return code;
    }
  }
  return 0;
}

std::string explain(const std::exception& error) {
  const std::string text = error.what();
  const int shortage = dynamic_cast<const Error*>(&error) == nullptr ? shortage_in(error) : 0;
  if (shortage == 0) {
    return text;
  }
  const std::size_t at = text.find(std::generic_category().message(shortage));
  return (at != std::string::npos ? text.substr(0, at) : text + ": ") + system_message(shortage);
}

void fail_thread(const char* purpose, int error) {
  fail<IoError>("{}{}: {}", kNoThread, purpose, system_message(error));
}

void require_descriptors(int count) {
  std::vector<Descriptor> opened;
  opened.reserve(static_cast<std::size_t>(std::max(count, 0)));
  for (int i = 0; i < count; ++i) {
    opened.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (opened.back().get() < 0) {
      throw std::system_error(errno, std::generic_category());
    }
  }
}

std::optional<std::uint64_t> free_addresses() {
  const Limit limit = limit_of(RLIMIT_AS);
  if (limit.now == RLIM_INFINITY) {
    return std::nullopt;
  }
  const std::uint64_t used = number_at(content_of("/proc/self/statm")).value_or(0) * page_bytes();
  return limit.now - std::min<std::uint64_t>(limit.now, used);
}

std::uint64_t free_memory() {
  std::uint64_t least = static_cast<std::uint64_t>(::sysconf(_SC_AVPHYS_PAGES)) * page_bytes();
  if (const auto group = left_in_control_groups("memory")) {
    least = std::min(least, group->left);
  }
  if (const auto addresses = free_addresses()) {
    least = std::min(least, *addresses);
  }
  return least;
}

}  // namespace tandem::inline v0::core
