// Trainings with a brake built in: whether diagnose() names it first, and whether taking its advice gives what it
// predicts. And trainings without one, of which it should say nothing.

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <tandem/core/check.h>
#include <tandem/tandem.h>

#include "brakes/cases.h"
#include "command_line/command_line.h"
#include "command_line/program.h"

namespace bench::brakes {

namespace {

// Runs the case as two processes of a job, which print what rank 0 has seen: "brake gain rate".
Seen run_as_processes(const std::string& program, const Case& one, bool braked) {
  const std::string tool = std::filesystem::path(program).parent_path() / "tandem";
  const std::string command =
      fmt::format("{}{} run -n 2 '{}' --rank '{}' 2>/dev/null", braked ? "taskset -c 0 " : "", tool, program, one.name);
  std::FILE* const pipe = ::popen(command.c_str(), "r");
  tandem::check<tandem::IoError>(pipe != nullptr, "cannot start: {}", command);
  char line[256] = {};
  Seen seen;
  int brake = 0;
  while (std::fgets(line, sizeof line, pipe) != nullptr) {
    const char* text = std::strstr(line, "seen ");
    if (text != nullptr && std::sscanf(text, "seen %d %lf %lf", &brake, &seen.first.gain, &seen.rate) == 3) {
      seen.first.brake = static_cast<tandem::telemetry::Brake>(brake);
    }
  }
  ::pclose(pipe);
  return seen;
}

int run_as_rank(const std::string& name) {
  const tandem::parallel::ProcessGroupGuard guard;
  for (const Case& one : braked_cases()) {
    if (one.name == name) {
      const Seen seen = one.train(true);
      if (tandem::parallel::get_rank() == 0) {
        fmt::print("seen {} {} {}\n", static_cast<int>(seen.first.brake), seen.first.gain, seen.rate);
      }
    }
  }
  return 0;
}

int run(int argc, char** argv) {
  std::string only;
  std::string rank;
  bool explains = false;
  CLI::App app("Builds brakes into trainings and looks whether diagnose() names them.", "brakes_bench");
  cli::add_text(app, "--only", "TEXT", "Only cases with this text in their name", only);
  cli::add_text(app, "--rank", "NAME", "Be a rank of that case", rank);
  app.add_flag("--explain", explains, "Print what it says of each");
  app.footer("Examples:\n  brakes_bench\n  brakes_bench --only bucket --explain");
  if (const auto code = cli::parse(app, argc, argv)) {
    return *code;
  }
  tandem::set_warning_handler([](const std::string&) {});
  if (!rank.empty()) {
    return run_as_rank(rank);
  }
  int named = 0;
  int close = 0;
  int count = 0;
  fmt::print("| brake | named first | predicted gain | gain | predicted / gain |\n| --- | --- | --- | --- | --- |\n");
  for (const Case& one : braked_cases()) {
    if (one.name.find(only) == std::string::npos) {
      continue;
    }
    const auto train = [&](bool braked) {
      return one.is_bound ? run_as_processes(argv[0], one, braked) : one.train(braked);
    };
    const Seen braked = train(true);
    const Seen released = train(false);
    const double gain = released.rate / braked.rate;
    const bool is_named = braked.first.brake == one.brake;
    const double ratio = braked.first.gain / gain;
    ++count;
    named += is_named ? 1 : 0;
    close += std::abs(ratio - 1) <= 0.2 ? 1 : 0;
    fmt::print("| {} | {} | {:.2f} | {:.2f} | {:.2f} |\n", one.name,
               is_named ? "yes" : fmt::format("no: {}", name_of(braked.first.brake)), braked.first.gain, gain, ratio);
    if (explains) {
      cli::narrate(braked.diagnosis + "released: " + released.diagnosis);
    }
  }
  int alarms = 0;
  int healthy = 0;
  for (const HealthyCase& one : healthy_cases()) {
    if (one.name.find(only) == std::string::npos) {
      continue;
    }
    const Seen seen = one.train();
    ++healthy;
    alarms += seen.verdict.empty() ? 0 : 1;
    fmt::print("| healthy: {} | {} | {:.2f} | | |\n", one.name,
               seen.verdict.empty() ? "nothing" : fmt::format("false alarm: {}", name_of(seen.first.brake)),
               seen.first.gain);
    if (explains && !seen.verdict.empty()) {
      cli::narrate(seen.diagnosis);
    }
  }
  fmt::print("\n{} of {} brakes named first, {} of {} gains within 20 %; {} false alarms in {} healthy trainings\n",
             named, count, close, count, alarms, healthy);
  return 0;
}

}  // namespace
}  // namespace bench::brakes

int main(int argc, char** argv) { return cli::run_main(argc, argv, bench::brakes::run); }
