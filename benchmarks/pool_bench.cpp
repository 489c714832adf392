// Measures the cost of sharing work out, and whether several replicas in one process hinder each other.
//
// ForkJoin: two empty chunks on N threads of the pool; with one thread, the loop alone.
// Replicas: N threads, each training a model of its own. `items_per_second` counts the steps of all threads, so two
// threads should reach about twice the rate of one (1.95 at least).

#include <atomic>
#include <cstdint>
#include <mutex>

#include <benchmark/benchmark.h>

#include <tandem/tandem.h>

namespace {

using namespace tandem;

void fork_join(benchmark::State& state) {
  set_num_threads(static_cast<int>(state.range(0)));
  auto& pool = core::ThreadPool::instance();
  std::atomic<int> sink{0};
  for ([[maybe_unused]] auto _ : state) {
    pool.for_each_chunk(state.range(0), [&](std::int64_t chunk) {
      if (chunk < 0) {
        ++sink;
      }
    });
  }
}
BENCHMARK(fork_join)->Name("ForkJoin")->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime();

struct Mlp : nn::Module<Mlp> {
  nn::Linear first, second, last;
  Mlp(std::int64_t in, std::int64_t hidden)
      : first(child("first", nn::Linear(in, hidden))),
        second(child("second", nn::Linear(hidden, hidden))),
        last(child("last", nn::Linear(hidden, 10))) {}
  Tensor forward(const Tensor& x) const { return last(second.forward_relu(first.forward_relu(x))); }
};

void replicas(benchmark::State& state, std::int64_t in, std::int64_t hidden, std::int64_t batch) {
  if (state.thread_index() == 0) {
    set_num_threads(state.threads());
  }
  static std::mutex making;  // all models draw from one generator
  std::unique_lock lock(making);
  const Mlp model(in, hidden);
  optim::SGD sgd(model.parameters(), {.lr = 1e-3});
  const Tensor x = randn({batch, in});
  const Tensor y = randint(0, 10, {batch});
  lock.unlock();
  for ([[maybe_unused]] auto _ : state) {
    sgd.zero_grad();
    const Tensor loss = nn::cross_entropy(model(x), y);
    loss.backward();
    sgd.step();
  }
  state.SetItemsProcessed(state.iterations());
}
void small_replicas(benchmark::State& state) { replicas(state, 128, 256, 16); }
void larger_replicas(benchmark::State& state) { replicas(state, 784, 512, 128); }
BENCHMARK(small_replicas)->Name("Replicas/128-256-256-10,b16")->ThreadRange(1, 2)->UseRealTime();
BENCHMARK(larger_replicas)->Name("Replicas/784-512-512-10,b128")->ThreadRange(1, 2)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
