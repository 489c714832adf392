#include "parallel/job/launched.h"

#include <array>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace tandem::test {

Launched::Launched(const std::vector<std::string>& arguments, bool together, const std::vector<std::string>& variables)
    : together_(together) {
  std::vector<char*> argv{const_cast<char*>(TANDEM_TOOL), const_cast<char*>("run")};
  for (const std::string& argument : arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  const std::string out = folder_.file("out");
  const std::string err = folder_.file("err");
  pid_ = ::fork();
  if (pid_ == 0) {
    ::alarm(110);
    std::signal(SIGPIPE, SIG_DFL);
    for (const std::string& variable : variables) {
      const std::size_t equals = variable.find('=');
      ::setenv(variable.substr(0, equals).c_str(), variable.substr(equals + 1).c_str(), 1);
    }
    const int out_fd = ::open(out.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    ::dup2(out_fd, STDOUT_FILENO);
    ::dup2(together ? out_fd : ::open(err.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600), STDERR_FILENO);
    ::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);  // ranks must not inherit the test's descriptors
    ::execv(argv[0], argv.data());
    ::_exit(126);
  }
}

Launched::~Launched() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
}

void Launched::signal(int number) const { ::kill(pid_, number); }

Outcome Launched::wait(std::chrono::seconds limit) {
  int status = 0;
  const bool ended = eventually([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; }, limit);
  Outcome outcome{.out = out(), .err = err()};
  if (!ended) {
    ADD_FAILURE() << "tandem run has not ended; its stderr:\n" << outcome.err;
    return outcome;
  }
  pid_ = -1;
  if (WIFEXITED(status)) {
    outcome.exit_code = WEXITSTATUS(status);
  } else {
    outcome.signal = WTERMSIG(status);
  }
  return outcome;
}

Outcome run_ranks(const std::vector<std::string>& arguments, const std::vector<std::string>& variables) {
  return Launched(arguments, false, variables).wait();
}

Outcome run_script(int ranks, const std::string& script, const std::vector<std::string>& flags) {
  std::vector<std::string> arguments{"-n", std::to_string(ranks)};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  arguments.insert(arguments.end(), {"sh", "-c", script});
  return run_ranks(arguments);
}

std::string until_written(const std::string& file) { return "until [ -s " + file + " ]; do sleep 0.01; done; "; }

std::string until_noticed_end(const std::string& file) {
  return until_written(file) + "while kill -0 $(cat " + file + ") 2>/dev/null; do sleep 0.01; done; ";
}

bool eventually(const std::function<bool()>& there, std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!there()) {
    if (std::chrono::steady_clock::now() > end) {
      return false;
    }
    std::this_thread::sleep_for(2ms);
  }
  return true;
}

pid_t pid_in(const std::string& path) {
  std::string text;  // the file is written by a single write, so its content is complete
  EXPECT_TRUE(eventually([&] { return !(text = read_text(path)).empty(); })) << path;
  return static_cast<pid_t>(std::atoi(text.c_str()));
}

char state_of(pid_t pid) {
  const std::string text = read_text(fmt::format("/proc/{}/stat", pid));
  return text.at(text.rfind(')') + 2);
}

std::vector<pid_t> processes_with(const std::string& text) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    pid_t pid = 0;
    const bool is_process =
        std::from_chars(name.data(), name.data() + name.size(), pid).ptr == name.data() + name.size();
    if (is_process && pid != ::getpid() && read_text(entry.path() / "cmdline").find(text) != std::string::npos) {
      found.push_back(pid);
    }
  }
  return found;
}

double seconds_of(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

}  // namespace tandem::test
