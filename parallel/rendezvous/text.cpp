#include <tandem/parallel/rendezvous/text.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include <sys/wait.h>
#include <unistd.h>

namespace tandem::inline v0::parallel {

namespace {

constexpr std::int64_t kMost = 1 << 20;

}  // namespace

bool is_host_name(std::string_view host, std::string_view more) {
  return !host.empty() && host.size() <= 253 && std::all_of(host.begin(), host.end(), [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' ||
           c == '_' || more.find(c) != std::string_view::npos;
  });
}

std::string at_port(const std::string& address, int port) {
  const bool is_v6 = address.find(':') != std::string::npos;
  return is_v6 ? fmt::format("[{}]:{}", address, port) : fmt::format("{}:{}", address, port);
}

std::optional<std::int64_t> parse_number(std::string_view text, std::int64_t least, std::int64_t most) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = error == std::errc() && end == text.data() + text.size() && !text.empty();
  return is_number && number >= least && number <= most ? std::optional(number) : std::nullopt;
}

std::string shown_key(std::string_view key) {
  constexpr std::size_t kShown = 80;
  std::string text(key.substr(0, kShown));
  std::replace_if(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '.');
  return key.size() > kShown ? text + "..." : text;
}

std::string rank_name(int rank, std::int64_t pid, const std::string& host) {
  return fmt::format("rank {} (pid {} on {})", rank, pid, host);
}

std::string signal_text(int number) {
  const char* name = ::sigabbrev_np(number);
  return name == nullptr ? fmt::format("signal {}", number) : fmt::format("signal {} (SIG{})", number, name);
}

std::string end_text(int status) {
  return WIFSIGNALED(status) ? fmt::format("was killed by {}", signal_text(WTERMSIG(status)))
                             : fmt::format("ended with exit code {}", WEXITSTATUS(status));
}

std::optional<int> slurm_tasks_on(std::string_view list, int node) {
  std::int64_t before = 0;
  while (!list.empty()) {
    const std::size_t comma = list.find(',');
    std::string_view entry = list.substr(0, comma);
    list = comma == std::string_view::npos ? std::string_view() : list.substr(comma + 1);
    std::optional<std::int64_t> nodes = 1;
    if (const std::size_t times = entry.find("(x"); times != std::string_view::npos && entry.back() == ')') {
      nodes = parse_number(entry.substr(times + 2, entry.size() - times - 3), 1, kMost);
      entry = entry.substr(0, times);
    }
    const std::optional<std::int64_t> tasks = parse_number(entry, 1, kMost);
    if (!nodes || !tasks) {
      return std::nullopt;
    }
    before += *nodes;
    if (node < before) {
      return static_cast<int>(*tasks);
    }
  }
  return std::nullopt;
}

std::optional<std::string> slurm_first_host(std::string_view list) {
  const std::size_t end = std::min(list.find_first_of(",["), list.size());
  std::string host(list.substr(0, end));
  if (end < list.size() && list[end] == '[') {
    // Takes the first number and the text after the bracket.
    const std::size_t close = list.find(']', end);
    if (close == std::string_view::npos) {
      return std::nullopt;
    }
    const std::string_view range = list.substr(end + 1, close - end - 1);
    const std::string_view number = range.substr(0, range.find_first_of(",-"));
    if (number.empty() || !std::all_of(number.begin(), number.end(), [](char c) { return c >= '0' && c <= '9'; })) {
      return std::nullopt;
    }
    const std::string_view rest = list.substr(close + 1);
    host.append(number).append(rest.substr(0, rest.find(',')));
  }
  return is_host_name(host) ? std::optional(host) : std::nullopt;
}

}  // namespace tandem::inline v0::parallel
