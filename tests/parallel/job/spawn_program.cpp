// Calls of spawn() with processes: spawn_program WHAT [FILE].

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>

#include <fmt/format.h>
#include <unistd.h>

#include <tandem/autograd/ops.h>
#include <tandem/parallel/comm/process_group.h>
#include <tandem/parallel/job/spawn.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/generator.h>

namespace {

using namespace tandem;

// Uses a single write, so that lines of several processes stay whole.
void say(const std::string& line) {
  const std::string text = line + "\n";
  [[maybe_unused]] const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
}

void several_calls(const std::string& argument) {
  parallel::spawn(2, [&](int rank) { say(fmt::format("first {} of 2 {}", rank, argument)); }, {.processes = true});
  int threads = 0;
  parallel::spawn(1, [&](int) { ++threads; });  // with threads: runs as often as main()
  say(fmt::format("between, {} thread", threads));
  for (int i = 0; i < 2; ++i) {
    parallel::spawn(3, [&](int rank) { say(fmt::format("loop {} rank {} {}", i, rank, argument)); },
                    {.processes = true});
  }
  say("end");
}

void draw() {
  manual_seed(3);
  parallel::spawn(2, [](int rank) { say(fmt::format("rank {} draws {}", rank, rand({1}).item<float>())); },
                  {.processes = true});
  say(fmt::format("parent draws {}", rand({1}).item<float>()));
}

void sum_up() {
  parallel::spawn(
      3,
      [](parallel::ProcessGroup& group) {
        const Tensor x = full({2}, group.rank() + 1.0);
        group.all_reduce(x);
        say(fmt::format("rank {} has {} over {}", parallel::get_rank(), x[0].item<float>(), group.backend()));
      },
      {.processes = true});
}

void fail_in(int which, const std::string& how) {
  parallel::spawn(3,
                  [&](parallel::ProcessGroup& group) {
                    try {
                      group.barrier();
                      if (group.rank() == which && how == "throw") {
                        throw std::runtime_error("its own words");
                      }
                      if (group.rank() == which && how == "kill") {
                        std::raise(SIGKILL);
                      }
                      group.barrier();
                    } catch (const CommError& error) {
                      say(fmt::format("rank {} heard: {}", group.rank(), error.what()));
                      throw;
                    }
                  },
                  {.processes = true});
}

void chatter() {
  parallel::spawn(3,
                  [](int rank) {
                    for (int i = 0; i < 200; ++i) {
                      std::string line = std::to_string(rank);
                      for (int k = 0; k < 100; ++k) {
                        line += fmt::format(",{}", rank);
                      }
                      std::fputs((line.substr(0, 61)).c_str(), stdout);
                      std::fflush(stdout);
                      say(line.substr(61));
                    }
                  },
                  {.processes = true});
}

void go_on() {
  parallel::spawn(3,
                  [](parallel::ProcessGroup& group) {
                    say(fmt::format("rank {} of {}", group.rank(), group.size()));
                    group.barrier();  // a rank that still meets the others would begin in the next group
                    if (group.size() == 3 && group.rank() == 1) {
                      throw std::runtime_error("its own words");
                    }
                    group.barrier();
                  },
                  {.processes = true, .elastic = 2});
  say("the parent goes on");
}

void another_way() {
  if (std::getenv("TANDEM_SPAWN_CALL") == nullptr) {
    parallel::spawn(2, [](int) {}, {.processes = true});
  }
}

}  // namespace

int main(int argc, char** argv) {
  ::alarm(60);
  const std::string what = argc > 1 ? argv[1] : "";
  try {
    if (what == "several") {
      several_calls(argc > 2 ? argv[2] : "");
    } else if (what == "draw") {
      draw();
    } else if (what == "throw" || what == "kill") {
      fail_in(1, what);
    } else if (what == "shape") {
      parallel::spawn(1, [](int) { ones({2}) + ones({3}); }, {.processes = true});
    } else if (what == "chatter") {
      chatter();
    } else if (what == "another way") {
      another_way();
    } else if (what == "group") {
      sum_up();
    } else if (what == "elastic") {
      go_on();
    } else if (what == "nested") {
      parallel::spawn(1, [](int) { parallel::spawn(1, [](int) {}, {.processes = true}); }, {.processes = true});
    } else if (what == "one") {
      parallel::spawn(1, [](int) { say("ran"); }, {.processes = true});
    }
  } catch (const CommError& error) {
    say(fmt::format("CommError {} {}: {}", name(error.details().fault), error.details().rank, error.what()));
    return 1;
  } catch (const ShapeError& error) {
    say(fmt::format("ShapeError: {}", error.what()));
    return 1;
  } catch (const std::runtime_error& error) {
    say(fmt::format("std::runtime_error: {}", error.what()));
    return 1;
  } catch (const std::exception& error) {
    say(fmt::format("error: {}", error.what()));
    return 1;
  }
  return 0;
}
