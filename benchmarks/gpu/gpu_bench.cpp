// Measures the engine on a GPU: training steps, Adam, losses and passes. The floor of each is the time that its bytes
// and products need at the rates of a copy and of a large product in the same process.

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include <fcntl.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/cuda.h>
#include <tandem/core/error.h>
#include <tandem/core/file.h>
#include <tandem/core/thread_state.h>
#include <tandem/kernels/matmul_tuning.h>
#include <tandem/tensor/factories.h>

#include "command_line/command_line.h"
#include "command_line/program.h"
#include "gpu/bench.h"

namespace bench::gpu {

void print_result(tandem::telemetry::Fields what, const char* variant, const Measured& measured, double floor_us,
                  tandem::telemetry::Fields more) {
  cli::narrate(
      fmt::format("{:<5} {:<34} {:<9} {:>11.2f} us{}", std::get<std::string>(what[what[0].name == "kind"].value),
                  std::get<std::string>(what[what[0].name == "kind" ? 2 : 1].value), variant, measured.us,
                  floor_us > 0 ? fmt::format(", {:.0f} % of it the floor", 100 * floor_us / measured.us) : ""));
  what.push_back({"engine", "tandem"});
  what.push_back({"variant", variant});
  what.push_back({"us", measured.us});
  what.push_back({"quartiles", std::vector<double>{measured.q1, measured.q3}});
  what.push_back({"wall_us", measured.wall_us});
  what.push_back({"host_us", measured.host_us});
  what.push_back({"calls_per_block", std::int64_t{measured.calls_per_block}});
  if (floor_us > 0) {
    what.push_back({"floor_us", floor_us});
  }
  what.push_back({"gpu", tandem::cuda::device_name(0)});
  what.insert(what.end(), more.begin(), more.end());
  cli::print_result_json(what);
}

namespace {

std::string cases_in(const std::string& folder) { return folder + "/cases.jsonl"; }

}  // namespace

void export_case(const Options& options, const tandem::telemetry::Fields& fields) {
  if (options.folder.empty()) {
    return;
  }
  const std::string path = cases_in(options.folder);
  const tandem::core::Descriptor file = tandem::core::open_regular("write", path, O_WRONLY | O_CREAT | O_APPEND, 0666);
  if (!tandem::core::write_all(file.get(), tandem::telemetry::to_json(fields) + "\n")) {
    tandem::core::fail_io("write", path, errno);
  }
}

namespace {

constexpr int kNoGpu = 77;

const std::vector<std::string> kWorkloads{"W0", "W1", "W2", "W3", "W4", "W5", "W7", "W8", "host"};

struct Arguments {
  Options options;
  std::vector<std::string> workloads = kWorkloads;
  std::int64_t blocks = 20;
  std::string lines;
  std::string stem;
  bool name = false;
  bool once = false;
};

void add_options(CLI::App& app, Arguments& arguments) {
  Options& options = arguments.options;
  cli::add_value(app, "--workloads", "W1,W2,...", "Which of W0 W1 W2 W3 W4 W5 W7 W8 host; default: all", "",
                 [&arguments](const std::string& text) {
                   arguments.workloads.clear();
                   for (std::size_t at = 0; at <= text.size();) {
                     const std::size_t comma = std::min(text.find(',', at), text.size());
                     arguments.workloads.push_back(text.substr(at, comma - at));
                     if (std::ranges::find(kWorkloads, arguments.workloads.back()) == kWorkloads.end()) {
                       cli::refuse("--workloads",
                                   fmt::format("some of {}, with ',' between them", fmt::join(kWorkloads, " ")), text);
                     }
                     at = comma + 1;
                   }
                 });
  cli::add_path(app, "--export", "Write cases and data there for the peers", options.folder);
  cli::add_whole<std::int64_t>(app, "--blocks", "Blocks to time for each number", arguments.blocks, 1, 10'000);
  cli::add_number(app, "--block-ms", "MS", "Length of a block; one call is the least", options.effort.block_ms, 0,
                  60'000);
  cli::add_whole(app, "--check-steps", "Steps after which losses are compared", options.check_steps, 1, 1'000'000);
  app.add_flag("--once", arguments.once, "Call each case only a few times, for a profiler: the times mean nothing");
  app.add_flag("--smoke", options.smoke, "Tiny sizes, for an emulated GPU: its times mean nothing");
  app.add_flag("--name", arguments.name, "Print the GPU's name, and end with 77 where there is none");
  cli::add_path(app, "--report", "Make a table of the lines in this file instead", arguments.lines);
  cli::add_path(app, "--out", "Where to: FILE.json and FILE.md", arguments.stem);
  app.footer(
      "One line of JSON for each number on stdout. Examples:\n"
      "  gpu_bench --workloads W1,W3 --export data > lines.jsonl\n"
      "  gpu_bench --report lines.jsonl --out results/today");
}

void run(const std::string& workload, const Options& options, Ceilings& ceilings) {
  if (workload == "W0") {
    run_ceilings(options, ceilings);
  } else if (workload == "W4") {
    run_adam(options, ceilings);
  } else if (workload == "W5") {
    run_cross_entropy(options, ceilings);
  } else if (workload == "W7") {
    run_passes(options, ceilings);
  } else if (workload == "host") {
    run_host(options);
  } else {
    run_training(workload, options, ceilings);
  }
}

void begin_export(const Options& options) {
  if (options.folder.empty()) {
    return;
  }
  std::error_code error;
  std::filesystem::create_directories(options.folder, error);
  tandem::core::open_regular("write", cases_in(options.folder), O_WRONLY | O_CREAT | O_TRUNC, 0666);
}

}  // namespace

int gpu_bench(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Times the engine on a GPU against what the GPU can do.", "gpu_bench");
  add_options(app, arguments);
  if (const auto code = cli::parse(app, argc, argv)) {
    return *code;
  }
  if (!arguments.lines.empty()) {
    if (arguments.stem.empty()) {
      cli::refuse("--out", "a file beside --report", "");
    }
    return write_report(arguments.lines, arguments.stem) == 0 ? 0 : 1;
  }
  if (!tandem::cuda::is_available()) {
    cli::narrate(fmt::format("no GPU: {}", tandem::cuda::why_unavailable()));
    return kNoGpu;
  }
  if (arguments.name) {
    fmt::print("{}\n", tandem::cuda::device_name(0));
    return 0;
  }
  Options& options = arguments.options;
  options.effort.blocks = static_cast<int>(arguments.blocks);
  if (options.smoke) {
    options.check_steps = 5;
    options.effort = {.warm_ups = 2, .warm_up_seconds = 1, .blocks = 2, .block_ms = 0};
  }
  if (arguments.once) {
    options.effort = {.warm_ups = 1, .warm_up_seconds = 0, .blocks = 1, .block_ms = 0};
  }
  begin_export(options);
  const tandem::core::DeviceScope scope("cuda:0");
  tandem::manual_seed(20);
  tandem::cuda::set_kernel_tuning(true);
  Ceilings ceilings(options);
  for (const std::string& workload : arguments.workloads) {
    run(workload, options, ceilings);
  }
  return 0;
}

}  // namespace bench::gpu
