// A rank on its own host (hosts.sh).
//
// The rank prints "joined" on stderr once it is in the group.
//
//     hosts_rank rate ROUNDS         all-reduces of 25 MiB; rank 0 prints "seconds <median> sent <bytes>", what its
//                                    host sent in an all-reduce
//     hosts_rank join                prints "seconds <until it was in the group>"
//     hosts_rank once TIMEOUT        an all-reduce of 1 MiB that may take TIMEOUT seconds; prints as "loop" does
//     hosts_rank loop SECONDS LIMIT  all-reduces of 1 MiB for SECONDS; a rank silent for LIMIT seconds is lost. Prints
//                                    "done <rounds>", or "error <ns since the epoch> <fault> <rank> <text>"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include <tandem/tandem.h>

using namespace tandem;
using Clock = std::chrono::steady_clock;

namespace {

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// The bytes that this host has sent so far.
double bytes_sent() {
  double bytes = 0;
  std::ifstream("/sys/class/net/eth0/statistics/tx_bytes") >> bytes;
  return bytes;
}

void measure(parallel::ProcessGroup& group, int rounds) {
  const Tensor x = ones({25 << 18});
  std::vector<double> seconds;
  double sent_before = 0;
  for (int round = -1; round < rounds; ++round) {
    group.barrier();
    if (round == 0) {
      sent_before = bytes_sent();
    }
    const Clock::time_point start = Clock::now();
    group.all_reduce(x, parallel::ReduceOp::avg);
    if (round >= 0) {
      seconds.push_back(seconds_since(start));
    }
  }
  const double sent = (bytes_sent() - sent_before) / rounds;
  std::sort(seconds.begin(), seconds.end());
  if (group.rank() == 0) {
    fmt::print("seconds {:.6f} sent {:.0f}\n", seconds[seconds.size() / 2], sent);
  }
}

void loop(parallel::ProcessGroup& group, double seconds) {
  const Clock::time_point start = Clock::now();
  Tensor x = zeros({1 << 18});
  Tensor over = zeros({1});
  int rounds = 0;
  for (; over.item<float>() == 0.0F; ++rounds) {
    x.fill_(group.rank() + rounds);
    group.all_reduce(x);
    const float expected = static_cast<float>(group.size() * rounds + group.size() * (group.size() - 1) / 2);
    if (x.min().item<float>() != expected || x.max().item<float>() != expected) {
      throw ValueError("a sum is wrong");
    }
    over.fill_(seconds_since(start) > seconds ? 1.0 : 0.0);
    group.broadcast(over, 0);
  }
  fmt::print("done {}\n", rounds);
}

void reduce_once(parallel::ProcessGroup& group, double limit) {
  group.set_timeout(std::chrono::milliseconds(static_cast<int>(1000 * limit)));
  group.all_reduce(ones({1 << 18}));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view mode = argc > 1 ? argv[1] : "";
  if (mode != "rate" && mode != "loop" && mode != "join" && mode != "once") {
    return 2;
  }
  const Clock::time_point start = Clock::now();
  try {
    const parallel::InitOptions options{.timeout = std::chrono::seconds(20),
                                        .init_timeout = std::chrono::seconds(20),
                                        .heartbeat_interval = std::chrono::milliseconds(500),
                                        .heartbeat_limit = std::chrono::seconds(argc > 3 ? std::atoi(argv[3]) : 10)};
    const parallel::ProcessGroupGuard guard(options);
    fmt::print(stderr, "joined\n");
    if (mode == "join") {
      fmt::print("seconds {:.3f}\n", seconds_since(start));
    } else if (mode == "once") {
      reduce_once(guard.group(), std::atof(argv[2]));
    } else if (mode == "rate") {
      measure(guard.group(), std::atoi(argv[2]));
    } else {
      loop(guard.group(), std::atof(argv[2]));
    }
  } catch (const CommError& error) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    fmt::print("error {} {} {} {}\n", std::chrono::duration_cast<std::chrono::nanoseconds>(now).count(),
               name(error.details().fault), error.details().rank, error.what());
    return 3;
  }
  return 0;
}
