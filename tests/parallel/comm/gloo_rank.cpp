// One rank of a job whose ranks are processes; gloo_process_test starts several of them, and stops or kills some.
// gloo_rank PORT RANK SIZE MODE: the store's port, the rank's identity, and its task; with a mode "hosts..." the ranks
// are on two hosts in turn. The first line of output is "started NANOSECONDS", the time since which the rank can hear
// of failures, by the clock that all processes share. The last line says how the rank ended: "done", or "error FAULT
// RANK NANOSECONDS TEXT".

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include <tandem/parallel/comm/alarm.h>
#include <tandem/tandem.h>

#include "parallel/distributed/ddp_training.h"

using namespace tandem;
using namespace std::chrono_literals;

namespace {

using Clock = std::chrono::steady_clock;

// Converts a verdict such as "rank 2 (pid 4711) was killed by signal 9".
CommError from_verdict(const std::string& verdict) {
  const int rank = verdict.starts_with("rank ") ? std::atoi(verdict.c_str() + 5) : -1;
  return CommError(verdict, {.fault = CommFault::peer_lost, .rank = rank});
}

long long now() { return static_cast<long long>(Clock::now().time_since_epoch().count()); }

long long hears_since = 0;

int tell(const CommError& error) {
  std::printf("error %s %d %lld %lld %s\n", std::string(name(error.details().fault)).c_str(), error.details().rank,
              now(), hears_since, error.what());
  return 0;
}

std::sig_atomic_t volatile stops = 0;

// Reduces until rank 0 decides to stop. After SIGUSR1 a rank stops before its next call.
void reduce_for(parallel::ProcessGroup& group, std::int64_t numel, std::chrono::milliseconds time) {
  const auto end = Clock::now() + time;
  for (bool last = false; !last;) {
    if (stops != 0) {
      std::raise(SIGSTOP);
    }
    const Tensor tensor = ones({numel});
    const Tensor flag = full({1}, group.rank() == 0 && Clock::now() >= end ? 1.0 : 0.0);
    group.all_reduce(tensor);
    group.all_reduce(flag, parallel::ReduceOp::max);
    if (tensor[numel - 1].item() != group.size()) {
      std::printf("wrong sum\n");
      std::_Exit(3);
    }
    last = flag[0].item() == 1;
  }
}

// Rank 0 comes only after the other ranks, which wait half a second, have missed it. Rank 0 is the lowest rank, so it
// is the first missing one, whenever another rank comes.
void forget(parallel::ProcessGroup& group, parallel::Store& store) {
  group.barrier();
  if (group.rank() == 0) {
    store.wait(std::vector<std::string>{"missed/1", "missed/2"});
    group.all_reduce(ones({3}));
    return;
  }
  group.set_timeout(500ms);
  try {
    group.all_reduce(ones({3}));
  } catch (const CommError&) {
    store.set(fmt::format("missed/{}", group.rank()), "");
    throw;
  }
}

std::shared_ptr<parallel::TcpStore> connected_store(int port, int rank, const std::shared_ptr<parallel::Alarm>& alarm) {
  struct Note {
    ~Note() { hears_since = now(); }  // also if the answer is that the job is over
  } const at_the_end;
  return std::make_shared<parallel::TcpStore>(parallel::TcpStoreOptions{
      .port = static_cast<std::uint16_t>(port),
      .rank = rank,
      .heartbeat_interval = 200ms,
      .on_verdict = [alarm](const std::string& verdict) { alarm->ring(from_verdict(verdict)); },
      .on_lost = [alarm](const std::string& reason) { alarm->ring(from_verdict(reason)); }});
}

void be_rank(int port, int rank, int size, std::string_view mode, const std::shared_ptr<parallel::Alarm>& alarm) {
  const auto store = connected_store(port, rank, alarm);
  parallel::ProcessGroup group(
      parallel::gloo_backend(
          {.store = store,
           .rank = rank,
           .size = size,
           .address = mode.starts_with("hosts") ? fmt::format("127.0.0.{}", 1 + rank % 2) : std::string(),
           .alarm = alarm,
           .setup_timeout = 60s,
           .greeting_timeout = 10s}),
      {.timeout = mode == "hosts-late" ? 5s : 20s});
  std::printf("connected\n");
  std::fflush(stdout);
  if (mode.starts_with("train ")) {
    std::printf("weights %s\n", test::trained_bits(group, std::atof(mode.substr(6).data())).c_str());
  } else if (mode == "forget") {
    forget(group, *store);
  } else {
    reduce_for(group, mode == "small" ? 100 : 1 << 20, mode == "brief" ? 2500ms : 10s);
  }
}

}  // namespace

int main(int, char** arguments) {
  std::signal(SIGUSR1, [](int) { stops = 1; });
  const auto alarm = std::make_shared<parallel::Alarm>();
  try {
    be_rank(std::atoi(arguments[1]), std::atoi(arguments[2]), std::atoi(arguments[3]), arguments[4], alarm);
  } catch (const CommError& error) {
    return tell(error);
  } catch (const parallel::StoreError& error) {
    return tell(from_verdict(error.what()));
  }
  std::printf("done\n");
}
