#pragma once

#include <string>
#include <vector>

// The commands of the program `tandem`. Each works like a main() whose argv[0] is the command's name.

namespace tool {

struct Command {
  const char* name;
  const char* summary;
  int (*run)(int argc, const char* const* argv);
};

/// tandem info: shows what this build can do on this machine.
int info(int argc, const char* const* argv);
/// tandem inspect: shows what a file of tensors holds, or how two differ.
int inspect(int argc, const char* const* argv);
/// tandem predict: how fast a run would be with more ranks.
int predict(int argc, const char* const* argv);
/// tandem report: makes a page about a run.
int report(int argc, const char* const* argv);
/// tandem run: starts a program as the ranks of a job.
int run(int argc, const char* const* argv);
/// tandem watch: shows a run while it goes on.
int watch(int argc, const char* const* argv);

inline const std::vector<Command>& commands() {
  static const std::vector<Command> all{{"info", "What this build can do on this machine", info},
                                        {"inspect", "What a file of tensors holds, or how two differ", inspect},
                                        {"predict", "How fast a run would be with more ranks", predict},
                                        {"report", "A page about a run: curves, a step's time, options", report},
                                        {"run", "Start a program as the ranks of a job", run},
                                        {"watch", "Show a run while it goes on", watch}};
  return all;
}

}  // namespace tool
