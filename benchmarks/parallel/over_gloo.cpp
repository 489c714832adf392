#include <stdexcept>  // Gloo's headers use it without including it

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <tandem/tandem.h>

#include "parallel/over_gloo.h"

namespace tandem::parallel {
namespace {

using Clock = std::chrono::steady_clock;
using Step = std::function<void()>;

constexpr int kRanks = 2;

struct Way {
  const char* name;
  Step step;
  std::vector<double> times;  // seconds per call, one value per round
};

// Supports the interfaces of Gloo as of 2022 and of today.
template <class Context>
void connect(Context& context, const std::shared_ptr<gloo::rendezvous::Store>& store,
             std::shared_ptr<gloo::transport::Device>& device) {
  if constexpr (requires { context.connectFullMesh(store, device); }) {
    context.connectFullMesh(store, device);
  } else {
    context.connectFullMesh(*store, device);
  }
}

// The context of a program that uses Gloo without tandem.
std::shared_ptr<gloo::Context> bare_context(const std::string& folder, int rank) {
  std::filesystem::create_directories(folder);
  gloo::transport::tcp::attr attributes;
  attributes.hostname = "127.0.0.1";
  auto device = gloo::transport::tcp::CreateDevice(attributes);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, kRanks);
  connect(*context, std::make_shared<gloo::rendezvous::FileStore>(folder), device);
  return context;
}

Step bare_step(const std::shared_ptr<gloo::Context>& context, gloo::AllreduceOptions::Algorithm algorithm,
               const std::shared_ptr<std::vector<float>>& memory) {
  return [=] {
    gloo::AllreduceOptions options(context);
    options.setOutput(memory->data(), memory->size());
    options.setReduceFunction(static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::sum<float>));
    options.setAlgorithm(algorithm);
    gloo::allreduce(options);
  };
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void report(std::size_t bytes, const std::vector<Way>& ways) {
  const std::vector<double>& floor = ways.front().times;
  for (const Way& way : ways) {
    std::vector<double> ratios;
    for (std::size_t round = 0; round < floor.size(); ++round) {
      ratios.push_back(way.times[round] / floor[round]);
    }
    std::printf("%9zu bytes  %-28s %10.1f us  %6.2f x\n", bytes, way.name, 1e6 * median(way.times), median(ratios));
  }
  std::fflush(stdout);
}

void bench_size(ProcessGroup& group, const std::shared_ptr<gloo::Context>& bare, std::size_t bytes, int rounds) {
  using Algorithm = gloo::AllreduceOptions::Algorithm;
  const auto numel = static_cast<std::int64_t>(bytes / sizeof(float));
  // The data are zeros, which stay zeros: no call is slowed down by infinities.
  const auto memory = std::make_shared<std::vector<float>>(static_cast<std::size_t>(numel));
  const auto halving = std::make_shared<gloo::AllreduceHalvingDoubling<float>>(bare, std::vector{memory->data()},
                                                                               static_cast<int>(numel));
  const Tensor tensor = zeros({numel});
  const auto plan = std::make_shared<PlannedAllReduce>(group.plan_all_reduce(tensor.raw()));
  std::vector<Way> ways;
  ways.push_back({"Gloo, ring", bare_step(bare, Algorithm::RING, memory), {}});
  ways.push_back({"Gloo, bcube", bare_step(bare, Algorithm::BCUBE, memory), {}});
  ways.push_back({"Gloo, halving-doubling", [halving] { halving->run(); }, {}});
  ways.push_back({"all_reduce", [&group, tensor] { group.all_reduce(tensor); }, {}});
  ways.push_back({"planned all_reduce", [plan] { plan->run(); }, {}});
  const int calls = bytes <= 64 << 10 ? 200 : bytes <= 2 << 20 ? 40 : 5;
  for (int round = -1; round < rounds; ++round) {  // round -1 warms up
    for (Way& way : ways) {
      group.barrier();
      const auto begin = Clock::now();
      for (int call = 0; call < calls; ++call) {
        way.step();
      }
      if (round >= 0) {
        way.times.push_back(std::chrono::duration<double>(Clock::now() - begin).count() / calls);
      }
    }
  }
  if (group.rank() == 0) {
    report(bytes, ways);
  }
}

void be_rank(const std::string& folder, int rank, int rounds) {
  const auto bare = bare_context(folder + "/bare", rank);
  ProcessGroup group(
      gloo_backend({.store = std::make_shared<FileStore>(folder + "/tandem", rank), .rank = rank, .size = kRanks}));
  for (const std::size_t bytes : {4 << 10, 64 << 10, 1 << 20, 25 << 20}) {
    bench_size(group, bare, bytes, rounds);
  }
  group.barrier();
}

}  // namespace

int bench_over_gloo(int rounds) {
  std::string folder = (std::filesystem::temp_directory_path() / "tandem-comm-bench-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) {
    std::perror("comm_bench: no folder for temporary files");
    return 1;
  }
  // The bare Gloo program needs this: a rank that ends first must not end the other one by a signal.
  std::signal(SIGPIPE, SIG_IGN);
  const pid_t child = ::fork();  // fork before any thread starts
  int code = 0;
  try {
    be_rank(folder, child == 0 ? 1 : 0, rounds);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "comm_bench: %s\n", error.what());
    code = 1;
  }
  if (child == 0) {
    std::_Exit(code);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  std::filesystem::remove_all(folder);
  return code != 0 || status != 0 ? 1 : 0;
}

}  // namespace tandem::parallel
