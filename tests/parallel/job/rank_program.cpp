// The ranks' programs in the tests of the launcher: rank_program WHAT [arguments]. Each rank ends by itself after a
// minute.

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tandem/parallel/rendezvous/environment.h>
#include <tandem/parallel/rendezvous/tcp_store.h>

namespace {

using namespace std::chrono_literals;
using namespace tandem::parallel;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "(unset)" : value;
}

int rank() { return std::atoi(variable("RANK").c_str()); }

TcpStore join(std::chrono::milliseconds timeout = 30s) {
  const WorldInfo world = read_world();
  return TcpStore({.host = world.address,
                   .port = world.port,
                   .token = JobToken::from_environment(),
                   .rank = world.rank,
                   .connect_timeout = timeout});
}

void note_pid(const std::string& folder, const std::string& name) {
  std::ofstream(folder + "/" + name + ".tmp") << ::getpid();
  std::filesystem::rename(folder + "/" + name + ".tmp", folder + "/" + name);
}

// Mode "who" prints the rank's identity from the environment.
int who() {
  std::string line;
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
                           "MASTER_ADDR", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS",
                           "TANDEM_STORE_HOSTED", "TANDEM_NUM_THREADS", "TANDEM_JOB_TOKEN_FILE"}) {
    line += fmt::format("{}={} ", name, variable(name));
  }
  fmt::print("{}run={} token={} port={}\n", line, variable("TORCHELASTIC_RUN_ID").size(),
             variable("TANDEM_JOB_TOKEN").size(), std::atoi(variable("MASTER_PORT").c_str()) > 0);
  return 0;
}

// meet NAME: all ranks publish NAME, and all names must be equal.
int meet(const std::string& name) {
  TcpStore store = join();
  const int count = std::atoi(variable("WORLD_SIZE").c_str());
  const std::string mine = name + " " + variable("TORCHELASTIC_RUN_ID");
  const bool is_first = store.add(fmt::format("came/{}", rank()), 1) == 1;
  store.set(fmt::format("who/{}", rank()), mine);
  for (int i = 0; i < count; ++i) {
    const std::string theirs = store.get(fmt::format("who/{}", i), 30s);
    if (theirs != mine || !is_first) {
      fmt::print(stderr, "rank {} of {} met {}\n", i, mine, theirs);
      return 9;
    }
  }
  fmt::print("met {} ranks of {}\n", count, name);
  return 0;
}

// drop HOW: rank 1 ends well, with or without a goodbye ("leave", "exit"), or reports its own error ("report"). The
// others wait forever, and print the error that ends their wait.
int drop(const std::string& how) {
  TcpStore store = join();
  try {
    store.add("here", 1);
    while (store.add("here", 0) < std::atoi(variable("WORLD_SIZE").c_str())) {
      std::this_thread::sleep_for(5ms);
    }
    if (rank() == 1 && how == "exit") {
      std::_Exit(0);
    }
    if (rank() == 1 && how == "leave") {
      return 0;
    }
    if (rank() == 0 && how == "report") {
      store.announce_verdict("mismatch by rank 1: process group: its ranks made different calls");
    }
    store.get("never", how == "leave" ? 2s : 60s);
  } catch (const StoreError& error) {
    fmt::print(stderr, "heard: {}\n", error.what());
    return how == "leave" && error.kind() == StoreError::Kind::timeout ? 0 : rank() == 1 ? 5 : 7;
  }
  return 8;
}

// wait FOLDER: joins, notes its pid, and waits forever. Prints the error that ends the wait on stderr, with exit code
// 7.
int wait_for_ever(const std::string& folder) {
  TcpStore store = join();
  note_pid(folder, fmt::format("pid{}", rank()));  // from here on the error may arrive
  try {
    store.get("never", 60s);
  } catch (const StoreError& error) {
    fmt::print(stderr, "heard: {}\n", error.what());
    return 7;
  }
  return 8;
}

// lines N: prints numbered lines of many lengths on both streams, in pieces.
int lines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += fmt::format("<{} {} {}>\n", rank(), i, std::string(static_cast<std::size_t>(i * 7 % 120), 'x'));
  }
  std::size_t length = 1;
  std::vector<std::size_t> at(3, 0);
  while (at[1] < text.size() || at[2] < text.size()) {
    for (const int fd : {1, 2}) {
      length = length * 31 % 1009 + 1;
      const std::string_view piece =
          std::string_view(text).substr(std::min(at[static_cast<std::size_t>(fd)], text.size()), length);
      const ssize_t written = ::write(fd, piece.data(), piece.size());
      at[static_cast<std::size_t>(fd)] += written > 0 ? static_cast<std::size_t>(written) : 0;
    }
  }
  return 0;
}

volatile std::sig_atomic_t caught = 0;

// catch FOLDER: prints the signal that arrives, and ends well.
int catch_signals(const std::string& folder) {
  // ThreadSanitizer allocates a thread's queue of signals in its first call that blocks, and loses one that arrives
  // meanwhile.
  std::this_thread::sleep_for(1ms);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    std::signal(number, [](int n) { caught = n; });
  }
  note_pid(folder, fmt::format("pid{}", rank()));
  while (caught == 0) {
    std::this_thread::sleep_for(5ms);
  }
  fmt::print("caught {}\n", static_cast<int>(caught));
  return 0;
}

// stubborn FOLDER: only SIGKILL ends the rank and its child.
int stubborn(const std::string& folder) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    std::signal(number, SIG_IGN);
  }
  if (::fork() == 0) {
    ::alarm(60);
    note_pid(folder, fmt::format("child{}", rank()));
    for (;;) {
      ::pause();
    }
  }
  note_pid(folder, fmt::format("pid{}", rank()));
  for (;;) {
    ::pause();
  }
}

// descriptors: lists the open ones.
int descriptors() {
  std::string open;
  for (int fd = 0; fd < 1024; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0) {
      open += fmt::format("{} ", fd);
    }
  }
  fmt::print("{}stdin={} group={} mask={}\n", open, ::getchar(), ::getpgrp() == ::getpid(), [] {
    sigset_t mask;
    ::sigprocmask(SIG_SETMASK, nullptr, &mask);
    return ::sigisemptyset(&mask);
  }());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  ::alarm(60);
  const std::string what = argc > 1 ? argv[1] : "";
  const std::string argument = argc > 2 ? argv[2] : "";
  try {
    return what == "who"           ? who()
           : what == "meet"        ? meet(argument)
           : what == "drop"        ? drop(argument)
           : what == "wait"        ? wait_for_ever(argument)
           : what == "lines"       ? lines(std::atoi(argument.c_str()))
           : what == "catch"       ? catch_signals(argument)
           : what == "stubborn"    ? stubborn(argument)
           : what == "descriptors" ? descriptors()
                                   : 99;
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 98;
  }
}
