// Every CPU kernel beside its roofline and its peers, on one thread and one instruction set. A kernel, its roofline and
// its peers run in alternating blocks, on the same memory.

#include <string>
#include <string_view>
#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <tandem/core/error.h>
#include <tandem/core/isa.h>
#include <tandem/core/thread_pool.h>

#include "command_line/command_line.h"
#include "command_line/program.h"
#include "kernel/case.h"
#include "kernel/measure.h"
#include "kernel/peers.h"
#include "kernel/report.h"

namespace bench::kernel {

namespace {

constexpr const char* kFooter = R"(Google Benchmark's flags hold, too. A case is FAMILY/NAME/DTYPE/SIZE.

Examples:
  kernel_bench --benchmark_filter='softmax/.*/f32'
  kernel_bench --benchmark_filter=/large --benchmark_out=kernels.json
  TANDEM_CPU_ISA=baseline kernel_bench --benchmark_filter=f32/large
)";

const char* text_of(Size size) { return size == Size::large ? "large" : size == Size::small ? "small" : "tiny"; }

void run_case(benchmark::State& state, const Entry& entry, Peers& peers, double block_seconds) {
  Case made = entry.make(entry.dtype, entry.size);
  made.operation.dtype = tandem::name(entry.dtype);
  Measurement measurement(made, peers.find(made.operation), block_seconds);
  for ([[maybe_unused]] auto _ : state) {
    state.SetIterationTime(measurement.block());
  }
  const Result result = measurement.result();
  const double amount = 1e-9 * (made.flops > 0 ? made.flops : result.bytes);
  state.counters[made.flops > 0 ? "GFLOP/s" : "GB/s"] = amount / result.ours;
  state.counters["roofline"] = result.roofline > 0 ? amount / result.roofline : 0;  // 0: too little memory to walk
  state.counters["share"] = result.share;
  state.counters["us"] = 1e6 * result.ours;
  for (const auto& [name, ratio] : result.peers) {
    state.counters[name] = ratio;
  }
}

// Hands Google Benchmark its flags and returns the others: it would answer --help itself.
std::vector<char*> take_flags(int argc, char** argv) {
  std::vector<char*> theirs{argv[0]};
  std::vector<char*> ours{argv[0]};
  for (int i = 1; i < argc; ++i) {
    (std::string_view(argv[i]).starts_with("--benchmark_") ? theirs : ours).push_back(argv[i]);
  }
  int count = static_cast<int>(theirs.size());
  benchmark::Initialize(&count, theirs.data());
  if (count > 1) {
    throw tandem::ValueError(fmt::format("unknown flag '{}'", cli::shown(theirs[1])));
  }
  return ours;
}

int kernel_bench(int argc, char** argv) {
  const std::vector<char*> arguments = take_flags(argc, argv);
  CLI::App app("Every CPU kernel beside its roofline and its peers.", "kernel_bench");
  app.footer(kFooter);
  std::string sizes = "small,large";
  std::int64_t blocks = 11;
  double block_ms = 2;
  std::string library;
  std::string program;
  cli::add_text(app, "--sizes", "NAMES", "Sizes of data: tiny, small, large", sizes);
  cli::add_whole<std::int64_t>(app, "--blocks", "Blocks to time", blocks, 1, 100'000);
  cli::add_number(app, "--block-ms", "MS", "Length of a block; a call is the least", block_ms, 0, 60'000);
  cli::add_path(app, "--peers", "Library of peers", library);
  cli::add_text(app, "--pytorch", "COMMAND", "Program that runs PyTorch", program);
  if (const auto code = cli::parse(app, static_cast<int>(arguments.size()), arguments.data())) {
    return *code;
  }
  tandem::set_num_threads(1);
  Peers peers(library, program);
  Cases cases;
  add_products(cases);
  add_fused(cases);
  add_spatial(cases);
  add_pointwise(cases);
  add_rows(cases);
  add_reductions(cases);
  add_losses(cases);
  add_moves(cases);
  add_updates(cases);
  for (const Entry& entry : cases.entries()) {
    if ((',' + sizes + ',').find(fmt::format(",{},", text_of(entry.size))) == std::string::npos) {
      continue;
    }
    const std::string name =
        fmt::format("{}/{}/{}/{}", entry.family, entry.name, tandem::name(entry.dtype), text_of(entry.size));
    benchmark::RegisterBenchmark(name.c_str(),
                                 [&](benchmark::State& state) { run_case(state, entry, peers, 1e-3 * block_ms); })
        ->Iterations(blocks)
        ->UseManualTime();
  }
  const std::string isa = tandem::core::to_string(tandem::core::isa());
  benchmark::AddCustomContext("processor", cli::cpu_model());
  benchmark::AddCustomContext("instruction set", isa);
  Table table({fmt::format("{}, one thread, {}", cli::cpu_model(), isa),
               "Rates count what the result takes: bytes of memory, or operations of a product. The columns of peers",
               "are their time / ours."});
  benchmark::RunSpecifiedBenchmarks(&table);
  return 0;
}

}  // namespace

}  // namespace bench::kernel

int main(int argc, char** argv) { return cli::run_main(argc, argv, bench::kernel::kernel_bench); }
