// A rank that joins its job: guard_program WHAT.

#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include <fmt/format.h>
#include <unistd.h>

#include <tandem/tandem.h>

namespace {

using namespace std::chrono_literals;
using namespace tandem;

// Uses a single write, so that lines of several processes stay whole.
void say(const std::string& line) {
  const std::string text = line + "\n";
  [[maybe_unused]] const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
}

int variable(const char* name) { return std::atoi(std::getenv(name)); }

void sum_up(parallel::ProcessGroup& group) {
  const Tensor x = full({2}, group.rank() + 1.0);
  group.all_reduce(x);
  say(fmt::format("sum {}", x[0].item<float>()));
}

// Keeps a Work, a sub-group and a wrapper beyond the end of the job.
void outlive() {
  std::optional<parallel::Work> work;
  std::unique_ptr<parallel::ProcessGroup> both;
  nn::Linear layer(2, 2);
  std::optional<parallel::DistributedDataParallel<nn::Linear>> ddp;
  parallel::init_process_group();
  parallel::ProcessGroup& group = parallel::default_group();
  work.emplace(group.barrier(true));
  work->wait();
  both = group.new_group({0, 1});
  ddp.emplace(layer);
  parallel::destroy_process_group();
  say("left");
}

void join_again() {
  for (int i = 0; i < 10; ++i) {
    const parallel::ProcessGroupGuard guard;
    sum_up(guard.group());
  }
}

// The ranks take turns to fail after joining. The others, which may still be joining, fail too, and then all join
// again.
void join_after_errors() {
  for (int i = 0; i < 12; ++i) {
    try {
      const parallel::ProcessGroupGuard guard({.init_timeout = 20s});
      if (i % 3 == 1 && guard.group().rank() == i / 3 % guard.group().size()) {
        throw IoError("mine");
      }
      const Tensor x = full({2}, guard.group().rank() + 1.0);
      guard.group().all_reduce(x);
    } catch (const Error&) {
      if (i % 3 != 1) {
        throw;
      }
    }
  }
  say("joined");
}

// Rank 1 comes too late for rank 0's first try.
void try_again() {
  if (variable("RANK") == 1) {
    std::this_thread::sleep_for(1s);
  }
  for (int i = 0; i < 10; ++i) {
    try {
      const parallel::ProcessGroupGuard guard({.init_timeout = 700ms});
      sum_up(guard.group());
      return;
    } catch (const CommError& error) {
      say(error.what());
    }
  }
}

void end_in_the_middle() {
  parallel::init_process_group();
  parallel::default_group().barrier();
  if (parallel::get_rank() == 1) {
    std::exit(3);
  }
  parallel::default_group().barrier();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  try {
    if (what == "outlive") {
      outlive();
    } else if (what == "join again") {
      join_again();
    } else if (what == "join after errors") {
      join_after_errors();
    } else if (what == "throw") {
      const parallel::ProcessGroupGuard guard;
      sum_up(guard.group());
      if (guard.group().rank() == 0) {
        throw IoError("the disk is full");
      }
      guard.group().barrier();
    } else if (what == "try again") {
      try_again();
    } else if (what == "end in the middle") {
      end_in_the_middle();
    } else if (what == "arguments") {
      const parallel::ProcessGroupGuard guard({.rank = variable("RANK"), .world_size = variable("WORLD_SIZE")});
      sum_up(guard.group());
    } else if (what == "join") {
      const parallel::ProcessGroupGuard guard;
      sum_up(guard.group());
    }
  } catch (const CommError& error) {
    say(fmt::format("CommError {} {}: {}", name(error.details().fault), error.details().rank, error.what()));
    return 1;
  } catch (const Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
  return 0;
}
