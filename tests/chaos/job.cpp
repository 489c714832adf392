#include "chaos/job.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

#include <fmt/format.h>

#include "support/temp_dir.h"

extern char** environ;

namespace tandem::test {

namespace {

std::optional<int> rank_of(pid_t pid) {
  std::istringstream variables(read_text(fmt::format("/proc/{}/environ", pid)));
  for (std::string variable; std::getline(variables, variable, '\0');) {
    if (variable.starts_with("RANK=")) {
      return std::stoi(variable.substr(5));
    }
  }
  return std::nullopt;
}

}  // namespace

int number_from_environment(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

std::int64_t monotonic_ns() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

Job::Job(int ranks, const std::vector<std::string>& launcher_options, const std::string& more,
         const std::string& program)
    : size_(ranks) {
  std::string folder = (std::filesystem::temp_directory_path() / "tandem-chaos-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) {
    throw std::runtime_error("no folder for a job");
  }
  folder_ = folder;
  std::vector<std::string> words{TANDEM_TOOL, "run", "-n", std::to_string(ranks)};
  words.insert(words.end(), launcher_options.begin(), launcher_options.end());
  words.insert(words.end(), {program, folder});
  if (!more.empty()) {
    words.push_back(more);
  }
  std::vector<char*> arguments;
  for (std::string& word : words) {
    arguments.push_back(word.data());
  }
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_addopen(&files, 1, (folder + "/stdout").c_str(), O_WRONLY | O_CREAT, 0600);
  ::posix_spawn_file_actions_addopen(&files, 2, (folder + "/stderr").c_str(), O_WRONLY | O_CREAT, 0600);
  const int error = ::posix_spawn(&launcher_, arguments[0], &files, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&files);
  if (error != 0) {
    throw std::runtime_error(fmt::format("{} does not start: {}", arguments[0], std::strerror(error)));
  }
}

Job::~Job() {
  if (!status_) {
    ::kill(launcher_, SIGKILL);
    ::waitpid(launcher_, nullptr, 0);
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::map<int, pid_t> Job::ranks() const {
  std::map<int, pid_t> found;
  std::error_code gone;
  for (const auto& task : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", launcher_), gone)) {
    std::istringstream children(read_text(task.path() / "children"));
    for (pid_t pid = 0; children >> pid;) {
      if (const std::optional<int> rank = rank_of(pid)) {
        found[*rank] = pid;
      }
    }
  }
  return found;
}

std::optional<int> Job::wait(std::chrono::milliseconds timeout) {
  for (const auto end = std::chrono::steady_clock::now() + timeout; !status_;) {
    int status = 0;
    if (::waitpid(launcher_, &status, WNOHANG) == launcher_) {
      status_ = status;
    } else if (std::chrono::steady_clock::now() > end) {
      break;
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  return status_;
}

RankReport Job::report(int rank) const {
  RankReport report;
  std::istringstream lines(read_text(folder_ / fmt::format("rank{}", rank)));
  for (std::string word; lines >> word;) {
    std::int64_t time = 0;
    if (word == "failed") {
      std::getline(lines, report.failed);
      continue;
    }
    lines >> time;
    if (word == "started") {
      report.started_ns = time;
    }
    report.joined |= word == "joined";
    report.done |= word == "done";
    if (word == "error") {
      report.error_ns = time;
      lines >> report.fault >> report.blamed;
      std::getline(lines, report.text);
    }
  }
  return report;
}

std::string Job::narration() const { return read_text(folder_ / "stderr"); }

std::string Job::story() const {
  std::string text = status_ ? fmt::format("launcher's status {:#x}\n", *status_) : "the launcher is still there\n";
  for (int rank = 0; rank < size_; ++rank) {
    text += fmt::format("--- rank {} wrote\n{}", rank, read_text(folder_ / fmt::format("rank{}", rank)));
  }
  return text + "--- stderr\n" + narration();
}

}  // namespace tandem::test
