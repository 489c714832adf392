#include <tandem/telemetry/environment.h>

#include <chrono>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <tandem/build.h>
#include <tandem/core/cores.h>
#include <tandem/core/host_name.h>
#include <tandem/core/isa.h>
#include <tandem/core/thread_pool.h>

namespace tandem::inline v0::telemetry {

namespace fs = std::filesystem;

namespace {

// The lines of a file, if it is one and not too large.
std::vector<std::string> lines_of(const fs::path& path) {
  constexpr std::uintmax_t kMost = 1 << 24;
  std::error_code error;
  std::vector<std::string> lines;
  if (fs::is_regular_file(path, error) && fs::file_size(path, error) <= kMost) {  // no pipe, which would block
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      lines.push_back(line);
    }
  }
  return lines;
}

std::string first_line(const fs::path& path) {
  const std::vector<std::string> lines = lines_of(path);
  return lines.empty() ? "" : lines.front();
}

// SHA-1 or SHA-256.
bool is_commit(std::string_view text) {
  return (text.size() == 40 || text.size() == 64) &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// The text after `begin`, if `text` begins so.
std::optional<std::string> after(std::string_view begin, const std::string& text) {
  return text.starts_with(begin) ? std::optional(text.substr(begin.size())) : std::nullopt;
}

// The folder of git around `folder`, or an empty path. A linked work tree has a file there that names it.
fs::path git_folder(const std::string& folder) {
  std::error_code error;
  for (fs::path at = fs::absolute(folder, error); !at.empty(); at = at.parent_path()) {
    const fs::path git = at / ".git";
    if (fs::is_directory(git, error)) {  // an error means no
      return git;
    }
    if (const auto named = after("gitdir: ", first_line(git)); named) {
      return at / *named;
    }
    if (at == at.parent_path()) {
      break;
    }
  }
  return {};
}

// The commit of a name such as refs/heads/main, from the file of all packed ones.
std::string packed_commit(const fs::path& git, const std::string& name) {
  for (const std::string& text : lines_of(git / "packed-refs")) {
    const std::string_view line = text;
    if (line.ends_with(" " + name) && is_commit(line.substr(0, line.find(' ')))) {
      return std::string(line.substr(0, line.find(' ')));
    }
  }
  return "";
}

// Returns the text that git keeps under a name such as refs/heads/main: a commit, or "ref: " and another name.
std::string text_of(const std::string& name, const fs::path& git) {
  const std::string common = first_line(git / "commondir");  // of a linked work tree
  for (const fs::path& place : {git, common.empty() ? git : git / common}) {
    std::string text = first_line(place / name);
    text = text.empty() ? packed_commit(place, name) : text;
    if (!text.empty()) {
      return text;
    }
  }
  return "";
}

}  // namespace

std::string git_commit(const std::string& folder) {
  constexpr int kMostNames = 4;  // as git
  const fs::path git = git_folder(folder);
  std::string text = git.empty() ? "" : first_line(git / "HEAD");
  for (int i = 0; i < kMostNames && !is_commit(text); ++i) {
    const std::optional<std::string> name = after("ref: ", text);
    text = name ? text_of(*name, git) : "";
  }
  return is_commit(text) ? text : "";
}

Fields environment() {
  std::error_code error;
  const fs::path here = fs::current_path(error);
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  return {{"tandem", std::string(TANDEM_VERSION)},
          {"git_commit", error ? std::string() : git_commit(here)},
          {"started", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(now))},
          {"host", core::host_name()},
          {"cores", static_cast<std::int64_t>(core::available_cores())},
          {"threads", static_cast<std::int64_t>(num_threads())},
          {"isa", core::to_string(core::isa())},
          {"compiler", std::string(__VERSION__)},
          {"cuda", TANDEM_WITH_CUDA != 0}};
}

}  // namespace tandem::inline v0::telemetry
