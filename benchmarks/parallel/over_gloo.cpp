#include <stdexcept>  // Gloo's headers use it without including it

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <tandem/tandem.h>

#include "parallel/gloo_ways.h"
#include "parallel/over_gloo.h"

namespace tandem::parallel {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kSecondsPerRound = 0.05;  // of one way; a call may take longer
constexpr double kMostCalls = 200;

struct Place {
  std::string folder;
  int rank;
  int size;
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
std::shared_ptr<gloo::Context> bare_context(const Place& place) {
  const std::string folder = place.folder + "/bare";
  std::filesystem::create_directories(folder);
  gloo::transport::tcp::attr attributes;
  if (const char* interface = std::getenv("GLOO_SOCKET_IFNAME")) {
    attributes.iface = interface;
  } else {
    attributes.hostname = "127.0.0.1";
  }
  auto device = gloo::transport::tcp::CreateDevice(attributes);
  auto context = std::make_shared<gloo::rendezvous::Context>(place.rank, place.size);
  connect(*context, std::make_shared<gloo::rendezvous::FileStore>(folder), device);
  return context;
}

double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
}
double microseconds(const Way& way) { return 1e6 * quantile(way.times, 0.5); }

void report(std::size_t bytes, Contest& contest) {
  std::sort(contest.gloos.begin(), contest.gloos.end(),
            [](const Way& a, const Way& b) { return microseconds(a) < microseconds(b); });
  const Way& best = contest.gloos.front();
  std::string others;
  for (auto way = contest.gloos.begin() + 1; way != contest.gloos.end(); ++way) {
    others += fmt::format("  {} {:.1f}", way->name, microseconds(*way));
  }
  for (const Way& way : contest.ours) {
    std::vector<double> ratios;
    for (std::size_t round = 0; round < way.times.size(); ++round) {
      ratios.push_back(way.times[round] / best.times[round]);
    }
    fmt::print("{:<18} {:>9} {:>10.1f} {:>10.1f}  {:<16} {:>6.2f}  ({:.2f} to {:.2f}){}\n", way.name, bytes,
               microseconds(way), microseconds(best), best.name, quantile(ratios, 0.5), quantile(ratios, 0.25),
               quantile(ratios, 0.75), others);
  }
  std::fflush(stdout);
}

// The root changes from call to call, so that no rank can run ahead of the others.
double seconds_per_call(ProcessGroup& group, const Way& way, int calls) {
  group.barrier();
  const auto begin = Clock::now();
  for (int call = 0; call < calls; ++call) {
    way.step(call % group.size());
  }
  group.barrier();
  return std::chrono::duration<double>(Clock::now() - begin).count() / calls;
}

// Warms up, and lets rank 0 choose for all.
int choose_calls(ProcessGroup& group, const Way& way, std::size_t bytes) {
  const double seconds = seconds_per_call(group, way, bytes <= 64 << 10 ? 10 : 1);
  const Tensor calls = full({1}, std::clamp(kSecondsPerRound / seconds, 1.0, kMostCalls));
  group.broadcast(calls, 0);
  return static_cast<int>(calls.item<float>());
}

void time(ProcessGroup& group, Contest& contest, std::size_t bytes, int rounds) {
  std::vector<std::pair<Way*, int>> turns;
  for (auto* ways : {&contest.gloos, &contest.ours}) {
    for (Way& way : *ways) {
      turns.emplace_back(&way, choose_calls(group, way, bytes));
    }
  }
  for (int round = 0; round < rounds; ++round) {
    for (const auto& [way, calls] : turns) {
      way->times.push_back(seconds_per_call(group, *way, calls));
    }
    std::rotate(turns.begin(), turns.begin() + 1, turns.end());  // no way always follows the same one
  }
  if (group.rank() == 0) {
    report(bytes, contest);
  }
}

// Compares the results of all ways. One of Gloo's that differs is marked; its time is printed all the same. Leaves
// zeros, which stay zeros: no call is slowed down by infinities.
void check(ProcessGroup& group, Contest& contest, Numbers& numbers) {
  std::vector<float> expected;
  Tensor differs = zeros({1});
  for (auto* ways : {&contest.ours, &contest.gloos}) {
    for (Way& way : *ways) {
      float* const in = numbers.in.mutable_data<float>();
      float* const out = numbers.out.mutable_data<float>();
      for (std::int64_t i = 0; i < numbers.numel; ++i) {
        in[i] = out[i] = static_cast<float>(group.rank() + i % 251);
      }
      group.barrier();
      way.step(0);
      if (expected.empty()) {
        expected.assign(out, out + contest.results);
      }
      differs.fill_(std::equal(expected.begin(), expected.end(), out) ? 0.0 : 1.0);
      group.all_reduce(differs, ReduceOp::max);
      if (differs.item<float>() != 0.0F) {
        way.name += " (WRONG)";
      }
    }
  }
  numbers.in.fill_(0);
  numbers.out.fill_(0);
}

void be_rank(const Place& place, int rounds) {
  const auto bare = bare_context(place);
  ProcessGroup group(gloo_backend({.store = std::make_shared<FileStore>(place.folder + "/tandem", place.rank),
                                   .rank = place.rank,
                                   .size = place.size}));
  if (place.rank == 0) {
    fmt::print("{:<18} {:>9} {:>10} {:>10}  {:<16} {:>6}  {}\n", "collective", "bytes", "ours, us", "Gloo, us",
               "its fastest", "ratio", "(quartiles)  Gloo's others, us");
  }
  Contest meeting = barriers(group, bare);
  time(group, meeting, 0, rounds);
  for (const std::size_t bytes : {4 << 10, 64 << 10, 1 << 20, 25 << 20}) {
    Numbers numbers(bytes, place.size);
    for (Contest& contest : contests(group, bare, numbers)) {
      check(group, contest, numbers);
      time(group, contest, bytes, rounds);
    }
  }
  group.barrier();
}

int code_of_rank(const Place& place, int rounds) {
  // The bare Gloo program needs this: a rank that ends first must not end the other one by a signal.
  std::signal(SIGPIPE, SIG_IGN);
  try {
    be_rank(place, rounds);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "comm_bench: rank {}: {}\n", place.rank, error.what());
    return 1;
  }
}

}  // namespace

int bench_over_gloo(int rounds, std::string folder) {
  if (!folder.empty()) {
    const char* rank = std::getenv("RANK");
    const char* size = std::getenv("WORLD_SIZE");
    if (rank == nullptr || size == nullptr) {
      fmt::print(stderr, "comm_bench: a rank of a job needs RANK and WORLD_SIZE in its environment\n");
      return 1;
    }
    return code_of_rank({folder, std::atoi(rank), std::atoi(size)}, rounds);
  }
  folder = (std::filesystem::temp_directory_path() / "tandem-comm-bench-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) {
    std::perror("comm_bench: no folder for temporary files");
    return 1;
  }
  const pid_t child = ::fork();  // fork before any thread starts
  const int code = code_of_rank({folder, child == 0 ? 1 : 0, 2}, rounds);
  if (child == 0) {
    std::_Exit(code);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  std::filesystem::remove_all(folder);
  return code != 0 || status != 0 ? 1 : 0;
}

}  // namespace tandem::parallel
