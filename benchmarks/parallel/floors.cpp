#include <algorithm>
#include <atomic>
#include <functional>
#include <numeric>
#include <string>
#include <utility>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <tandem/core/spin.h>
#include <tandem/core/thread_pool.h>

#include "parallel/nets.h"
#include "step/clock.h"
#include "step/measure.h"

namespace bench::data_parallel {

using namespace tandem;

const std::vector<Device>& devices() {
  static const std::vector<Device> two{"cpu:0", "cpu:1"};
  return two;
}

std::int64_t parameters_of(const bench::Spec& spec) {
  std::int64_t count = 0;
  for (std::size_t layer = 0; layer + 1 < spec.sizes.size(); ++layer) {
    count += (spec.sizes[layer] + 1) * spec.sizes[layer + 1];
  }
  return count;
}

namespace {

/// Median time of a call, in microseconds.
double us_of(const std::function<void()>& call, int times) {
  std::vector<double> us;
  for (int i = 0; i < times; ++i) {
    const double start = bench::now(false);
    call();
    us.push_back(1e6 * (bench::now(false) - start));
  }
  return bench::median(std::move(us));
}

/// Runs body() on the pool's other thread and waits. The caller spins meanwhile: otherwise it would take over a lane
/// that the other thread has not begun.
template <class Body>
void on_other_thread(const Body& body) {
  std::atomic<bool> done{false};
  core::ThreadPool::instance().for_each_lane(2, [&](std::int64_t lane) {
    if (lane == 1) {
      body();
      done.store(true, std::memory_order_release);
    }
    while (!done.load(std::memory_order_acquire)) {
      core::spin_pause();
    }
  });
}

void hand_over() {
  on_other_thread([] {});
}

/// Numbers that another core writes and this core adds up, as happens with gradients.
class Transfer {
 public:
  explicit Transfer(std::int64_t count)
      : there_(static_cast<std::size_t>(count), 1.0F), here_(static_cast<std::size_t>(count)) {}

  void write(bool on_other_core) {
    const auto write = [this] {
      std::ranges::for_each(there_, [](float& value) { value += 1; });
      benchmark::ClobberMemory();
    };
    on_other_core ? on_other_thread(write) : write();
  }
  void read_sum(bool on_other_core) {
    const auto read = [this] { benchmark::DoNotOptimize(std::accumulate(here_.begin(), here_.end(), 0.0F)); };
    on_other_core ? on_other_thread(read) : read();
  }
  void add() {
    for (std::size_t i = 0; i < here_.size(); ++i) {
      here_[i] += there_[i];
    }
    benchmark::ClobberMemory();
  }
  double us(bool on_other_core) {
    std::vector<double> us;
    for (int i = 0; i < 201; ++i) {
      write(on_other_core);
      us.push_back(us_of([this] { add(); }, 1));
    }
    return bench::median(std::move(us));
  }

 private:
  std::vector<float> there_;
  std::vector<float> here_;
};

void hand_over_floor(benchmark::State& state) {
  set_num_threads(2);
  for ([[maybe_unused]] auto _ : state) {
    hand_over();
  }
}
BENCHMARK(hand_over_floor)->Name("Floor/hand over")->UseRealTime();

void add_floor(benchmark::State& state, const bench::Spec& spec, void (Transfer::*before)(bool), bool on_other_core) {
  set_num_threads(2);
  const std::int64_t count = parameters_of(spec);
  Transfer transfer(count);
  for ([[maybe_unused]] auto _ : state) {
    (transfer.*before)(on_other_core);
    state.SetIterationTime(1e-6 * us_of([&] { transfer.add(); }, 1));
  }
  state.SetBytesProcessed(state.iterations() * count * 4);
}

}  // namespace

double floor_us(std::int64_t parameters) {
  set_num_threads(2);
  return 2 * us_of(hand_over, 2001) + 2 * Transfer(parameters).us(true);
}

void register_floors() {
  for (const auto& [model, spec] :
       {std::pair("128-256-128-10", small_net()), std::pair("784-512-512-10", large_net())}) {
    for (const bool other : {true, false}) {
      const auto add = [&, &of = spec](const char* what, void (Transfer::*before)(bool)) {
        const std::string name = fmt::format("Floor/{}/{} {} core", model, what, other ? "the other" : "the same");
        benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
          add_floor(state, of, before, other);
        })->UseManualTime();
      };
      add("add gradients, written by", &Transfer::write);
      add("update parameters, read by", &Transfer::read_sum);
    }
  }
}

}  // namespace bench::data_parallel
