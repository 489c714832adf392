// Collectives between two ranks that are threads of one process, beside their floor. In an all-reduce each rank reads
// half of both tensors and writes the result to both, which costs as much as copying one tensor. In the floor both
// threads copy at once.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include <tandem/tandem.h>

#include "parallel/over_gloo.h"

namespace tandem::parallel {
namespace {

constexpr int kRanks = 2;
constexpr int kBatch = 16;  // calls between two reads of the clock

// The work of one rank in a batch; made on the rank's thread.
using Step = std::function<void()>;
using MakeStep = std::function<Step(ProcessGroup& group, std::int64_t numel)>;

// Runs as many batches on rank 1 as on rank 0, which is timed.
void run_ranks(benchmark::State& state, const MakeStep& make_step) {
  std::vector<std::unique_ptr<ProcessGroup>> groups = local_groups(kRanks);
  const std::int64_t numel = state.range(0) / static_cast<std::int64_t>(sizeof(float));
  std::atomic<std::int64_t> wanted{0};
  std::thread other([&] {
    const Step step = make_step(*groups[1], numel);
    for (std::int64_t done = 0;; ++done) {
      while (wanted.load() == done) {
        std::this_thread::yield();
      }
      if (wanted.load() < 0) {
        return;
      }
      for (int i = 0; i < kBatch; ++i) {
        step();
      }
    }
  });
  const Step step = make_step(*groups[0], numel);
  while (state.KeepRunningBatch(kBatch)) {
    ++wanted;
    for (int i = 0; i < kBatch; ++i) {
      step();
    }
  }
  wanted = -1;
  other.join();
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

Step checked(ProcessGroup& group, std::int64_t numel) {
  const Tensor tensor = ones({numel});
  return [&group, tensor] { group.all_reduce(tensor, ReduceOp::avg); };
}

Step planned(ProcessGroup& group, std::int64_t numel) {
  const Tensor tensor = ones({numel});
  const auto plan = std::make_shared<PlannedCollective>(group.plan_all_reduce(tensor.raw(), ReduceOp::avg));
  return [plan] { plan->run(); };
}

// Runs on the communication threads: four threads on possibly two cores.
Step planned_async(ProcessGroup& group, std::int64_t numel) {
  const Tensor tensor = ones({numel});
  const auto plan = std::make_shared<PlannedCollective>(group.plan_all_reduce(tensor.raw(), ReduceOp::avg));
  return [plan] {
    plan->start();
    plan->wait();
  };
}

Step gathered(ProcessGroup& group, std::int64_t numel) {
  const Tensor part = ones({numel / kRanks});
  const Tensor all = zeros({numel});
  return [&group, part, all] { group.all_gather_into_tensor(all, part); };
}

Step from_root(ProcessGroup& group, std::int64_t numel) {
  const Tensor tensor = ones({numel});
  return [&group, tensor] { group.broadcast(tensor, 0); };
}

// The floor: a copy of one tensor.
Step copied(ProcessGroup& group, std::int64_t numel) {
  const Tensor from = ones({numel});
  Tensor to = zeros({numel});
  group.barrier();
  return [from, to = to.mutable_data<float>(), keep = to, bytes = static_cast<std::size_t>(numel) * sizeof(float)] {
    std::memcpy(to, from.data<float>(), bytes);
    benchmark::ClobberMemory();
  };
}

void met(benchmark::State& state) {
  run_ranks(state, [](ProcessGroup& group, std::int64_t) { return [&group] { group.barrier(); }; });
}

void register_all() {
  const std::pair<const char*, MakeStep> cases[] = {
      {"all_reduce", checked},  {"planned_all_reduce", planned}, {"planned_all_reduce_async", planned_async},
      {"all_gather", gathered}, {"broadcast", from_root},        {"memcpy_floor", copied}};
  for (const auto& [name, make_step] : cases) {
    benchmark::RegisterBenchmark(name,
                                 [make_step = make_step](benchmark::State& state) { run_ranks(state, make_step); })
        ->Arg(4 << 10)
        ->Arg(1 << 20)
        ->Arg(25 << 20)
        ->UseRealTime();
  }
  benchmark::RegisterBenchmark("barrier", met)->Arg(0)->UseRealTime();
}

}  // namespace
}  // namespace tandem::parallel

// usage: comm_bench --backend gloo [ROUNDS [FOLDER]]; see over_gloo.h.
int main(int argc, char** argv) {
  if (argc > 2 && std::string_view(argv[1]) == "--backend" && std::string_view(argv[2]) == "gloo") {
#if defined(TANDEM_BENCH_GLOO)
    return tandem::parallel::bench_over_gloo(argc > 3 ? std::atoi(argv[3]) : 15, argc > 4 ? argv[4] : "");
#else
    std::fputs("comm_bench: built without Gloo: apt-get install libgloo-dev\n", stderr);
    return 1;
#endif
  }
  benchmark::Initialize(&argc, argv);
  tandem::parallel::register_all();
  benchmark::RunSpecifiedBenchmarks();
}
