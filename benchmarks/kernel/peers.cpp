#include "kernel/peers.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/error.h>

#include "command_line/program.h"
#include "kernel/clock.h"

namespace bench::kernel {

// A process that answers lines. To a case, a JSON object, it answers "ok" or "no"; to "time SECONDS", the seconds of a
// call in a block of that length.
class Peers::Program {
 public:
  explicit Program(const std::string& command) {
    int sockets[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0 || (child_ = ::fork()) < 0) {
      throw tandem::IoError(fmt::format("'{}' cannot be started", command));
    }
    if (child_ == 0) {
      ::dup2(sockets[1], STDIN_FILENO);
      ::dup2(sockets[1], STDOUT_FILENO);
      ::execl("/bin/sh", "sh", "-c", command.c_str(), static_cast<char*>(nullptr));
      ::_exit(127);
    }
    ::close(sockets[1]);
    std::signal(SIGPIPE, SIG_IGN);  // a write to a process that ended fails, and the next read says so
    to_ = ::fdopen(sockets[0], "w");
    from_ = ::fdopen(::fcntl(sockets[0], F_DUPFD_CLOEXEC, 0), "r");
    name_ = line();
    if (name_.empty()) {
      throw tandem::Error(fmt::format("'{}' ended without its name", command));
    }
  }
  ~Program() {
    std::fclose(to_);
    std::fclose(from_);
    ::waitpid(child_, nullptr, 0);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  const std::string& name() const { return name_; }

  /// The answer to a line; empty once the process has ended.
  std::string ask(const std::string& question) {
    if (std::fputs((question + "\n").c_str(), to_) < 0 || std::fflush(to_) != 0) {
      return {};
    }
    return line();
  }

 private:
  std::string line() {
    std::string text;
    for (int c = std::fgetc(from_); c != EOF && c != '\n'; c = std::fgetc(from_)) {
      text.push_back(static_cast<char>(c));
    }
    return text;
  }

  pid_t child_ = -1;
  std::FILE* to_ = nullptr;
  std::FILE* from_ = nullptr;
  std::string name_;
};

Peers::Peers(const std::string& library, const std::string& program) {
  if (!library.empty()) {
    void* opened = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);  // stays open
    find_ = opened != nullptr ? reinterpret_cast<FindPeers>(::dlsym(opened, kPeersSymbol)) : nullptr;
    if (find_ == nullptr) {
      throw tandem::Error(fmt::format("the peers cannot be loaded: {}", ::dlerror()));
    }
  }
  if (!program.empty()) {
    program_ = std::make_unique<Program>(program);
  }
}

Peers::~Peers() = default;

std::vector<TimedPeer> Peers::find(const Operation& operation) {
  std::vector<TimedPeer> timed;
  if (operation.name.empty()) {
    return timed;
  }
  std::vector<Peer> found;
  if (find_ != nullptr) {
    find_(operation, found);
  }
  for (Peer& peer : found) {
    timed.push_back({peer.name, [run = std::move(peer.run), calls = std::int64_t{0}](double block_seconds) mutable {
                       if (calls == 0) {
                         run();
                         const double once = std::max(seconds_of(1, run), 1e-8);
                         calls = std::max<std::int64_t>(1, static_cast<std::int64_t>(block_seconds / once));
                       }
                       return seconds_of(calls, run) / static_cast<double>(calls);
                     }});
  }
  if (program_ != nullptr) {
    const std::string answer =
        program_->ask(fmt::format(R"({{"name": "{}", "dtype": "{}", "sizes": [{}]}})", operation.name, operation.dtype,
                                  fmt::join(operation.sizes, ", ")));
    if (answer == "ok") {
      timed.push_back({program_->name(), [program = program_.get()](double block_seconds) {
                         return std::strtod(program->ask(fmt::format("time {}", block_seconds)).c_str(), nullptr);
                       }});
    } else if (answer.empty()) {
      cli::narrate(fmt::format("{} ended; going on without it", program_->name()));
      program_.reset();
    }
  }
  return timed;
}

}  // namespace bench::kernel
