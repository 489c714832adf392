#include "support/process.h"

#include <csignal>
#include <sstream>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "support/temp_dir.h"

namespace tandem::test {

namespace {

constexpr unsigned kMostSeconds = 120;

// In the child: replaces descriptor `fd` as `stream` requires.
void redirect(int fd, Stream stream, const std::string& file) {
  if (stream == Stream::captured) {
    ::dup2(::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), fd);
  } else if (stream == Stream::closed) {
    ::close(fd);
  } else {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) == 0) {
      ::dup2(ends[1], fd);
      ::close(ends[0]);
      ::close(ends[1]);
    }
  }
}

[[noreturn]] void become(const std::string& program, const std::vector<std::string>& arguments,
                         const std::string& folder, Stream out, Stream err, const std::string& captured) {
  ::alarm(kMostSeconds);          // the alarm survives the exec
  std::signal(SIGPIPE, SIG_DFL);  // the setting under which a shell starts programs
  redirect(STDOUT_FILENO, out, captured + "/out");
  redirect(STDERR_FILENO, err, captured + "/err");
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  if (::chdir(folder.c_str()) == 0) {
    ::execv(program.c_str(), argv.data());
  }
  ::_exit(127);
}

}  // namespace

Outcome run_program(const std::string& program, const std::vector<std::string>& arguments, const std::string& folder,
                    Stream out, Stream err) {
  const TempDir captured;
  const pid_t child = ::fork();
  if (child == 0) {
    become(program, arguments, folder, out, err, captured.path());
  }
  Outcome outcome;
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  if (WIFEXITED(status)) {
    outcome.exit_code = WEXITSTATUS(status);
  } else {
    outcome.signal = WTERMSIG(status);
  }
  outcome.out = read_text(captured.file("out"));
  outcome.err = read_text(captured.file("err"));
  return outcome;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    lines.push_back(line);
  }
  return lines;
}

}  // namespace tandem::test
