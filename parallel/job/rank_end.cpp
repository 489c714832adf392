#include <tandem/parallel/job/rank_end.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <utility>

#include <sys/wait.h>

#include <fmt/format.h>

#include <tandem/parallel/job/attempt.h>

namespace tandem::inline v0::parallel {

namespace {

constexpr std::size_t kScreen = 22;  // lines of the whole report
constexpr std::size_t kKinds = 6;    // lines for different kinds of end
constexpr std::size_t kColumns = 160;

// One line for each kind of end.
std::vector<std::string> others_lines(int culprit, const std::vector<RankEnd>& ends) {
  std::vector<std::pair<std::string, std::vector<int>>> kinds;
  for (const RankEnd& end : ends) {
    if (end.rank == culprit) {
      continue;
    }
    const std::string text = how_it_ended(end);
    auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const auto& k) { return k.first == text; });
    if (kind == kinds.end()) {
      kind = kinds.insert(kinds.end(), {text, {}});
    }
    kind->second.push_back(end.rank);
  }
  std::vector<std::string> lines;
  for (const auto& [text, ranks] : kinds) {
    if (lines.size() == kKinds) {
      lines.push_back("  ...");
      break;
    }
    lines.push_back(
        fmt::format("  {} {}: {}", ranks.size() == 1 ? "rank" : "ranks", one_line(number_list(ranks), 60), text));
  }
  return lines;
}

}  // namespace

int rank_in(const std::string& text) {
  constexpr std::string_view kStart = "rank ";
  const std::size_t end = text.find(" (pid ");
  if (!text.starts_with(kStart) || end == std::string::npos) {
    return -1;
  }
  const auto rank = parse_number(std::string_view(text).substr(kStart.size(), end - kStart.size()), 0, 1 << 20);
  return rank ? static_cast<int>(*rank) : -1;
}

std::string without_pid(const std::string& text) {
  const std::size_t start = text.find(" (pid ");
  const std::size_t end = start == std::string::npos ? start : text.find(" on ", start);
  return end == std::string::npos ? text : text.substr(0, start) + " (" + text.substr(end + 1);
}

std::string how_it_ended(const RankEnd& end) {
  if (end.asked == "SIGTERM" && WIFSIGNALED(end.status) && WTERMSIG(end.status) == SIGTERM) {
    return "ended by the launcher's SIGTERM";
  }
  if (end.asked.empty()) {
    return end_text(end.status);
  }
  if (WIFSIGNALED(end.status) && WTERMSIG(end.status) == SIGKILL && end.asked == "SIGKILL") {
    return "did not end by SIGTERM, and had to be killed";
  }
  return fmt::format("{} after the launcher's {}", end_text(end.status), end.asked);
}

int exit_code_of(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

std::string words_at_the_end(const std::deque<std::string>& lines) {
  const auto is_indented = [](const std::string& line) { return line.starts_with(' ') || line.starts_with('\t'); };
  const auto is_error = [](const std::string& line) {
    return line.starts_with("error:") || line.starts_with("terminate called") || line.starts_with("fatal");
  };
  auto begin = std::find_if(lines.rbegin(), lines.rend(), is_error);
  if (begin == lines.rend()) {
    begin = std::find_if_not(lines.rbegin(), lines.rend(), is_indented);
  }
  if (begin == lines.rend()) {
    return lines.empty() ? "" : lines.back();
  }
  std::string words = *begin;
  for (auto line = begin.base(); line != lines.end() && is_indented(*line); ++line) {
    words += *line;
  }
  return words;
}

std::string number_list(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) {
      ++last;
    }
    text += fmt::format("{}{}", text.empty() ? "" : ", ", numbers[i]);
    text += last > i ? fmt::format("{}{}", last == i + 1 ? ", " : "-", numbers[last]) : "";
    i = last + 1;
  }
  return text;
}

std::string one_line(const std::string& text, std::size_t most) {
  std::string line = text.size() > most ? text.substr(0, most) + "..." : text;
  std::replace_if(line.begin(), line.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; }, ' ');
  return line;
}

std::string failure_report(const AttemptResult& result, const std::string& remark) {
  std::string report = fmt::format("tandem run: the job failed after {:.1f} s\n", result.after);
  const int culprit = result.outcome.rank;
  const std::vector<std::string> others = others_lines(culprit, result.ends);
  for (const std::string& line : others) {
    report += line + "\n";
  }
  const std::size_t room = kScreen - 4 - others.size();
  const std::size_t skipped = result.last_lines.size() - std::min(result.last_lines.size(), room);
  if (!result.last_lines.empty()) {
    report += fmt::format("  the last lines of rank {} on stderr{}{}:\n", culprit,
                          result.log.empty() ? "" : ", all in ", result.log);
    for (std::size_t i = skipped; i < result.last_lines.size(); ++i) {
      report += "    " + one_line(result.last_lines[i], kColumns) + "\n";
    }
  }
  if (!remark.empty()) {
    report += fmt::format("tandem run: {}\n", remark);
  }
  return report + fmt::format("tandem run: {}\n", one_line(result.outcome.cause, 2 * kColumns));
}

}  // namespace tandem::inline v0::parallel
