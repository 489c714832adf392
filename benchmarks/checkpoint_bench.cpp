#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <string>
#include <vector>

#include <unistd.h>

#include <benchmark/benchmark.h>

#include <tandem/tandem.h>

// Files of tensors: saving and loading a model of TANDEM_BENCH_MB megabytes (default 256), with the page cache warm.
// "memcpy" copies as many bytes, on one thread: the floor of a load that hands out memory of its own.
// peers/load_safetensors.py reads such a file with Python's safetensors.
//
// step_that_saves is a step of a Run whose state has TANDEM_BENCH_STATE_MB megabytes (default 100): "times_memcpy" is
// its time divided by that of a memcpy of the state, made just before, and "write_ms" the time until it is on the disk.
// training_with_run/<batch>/<watch> makes 784-512-512-10 steps with Adam, with a Run and without in turn, and saves
// between them. "lost_percent" is what a run with every = 500 loses: the median difference of the steps, and the stall
// and the processor time of one save, shared among 500 steps and all cores. With <watch> 1 gradients are looked at.

namespace {

using namespace tandem;

std::int64_t megabytes() {
  const char* text = std::getenv("TANDEM_BENCH_MB");
  return text != nullptr ? std::atoll(text) : 256;
}

StateDict model() {
  constexpr std::int64_t kTensors = 16;
  StateDict state;
  for (std::int64_t i = 0; i < kTensors; ++i) {
    state.set("layer" + std::to_string(i) + ".weight", ones({megabytes() * 250'000 / kTensors}));
  }
  return state;
}

class File {
 public:
  File() : path_(std::filesystem::temp_directory_path() / ("tandem-bench-" + std::to_string(::getpid()))) {
    save(model(), path_);
  }
  ~File() { std::filesystem::remove(path_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void count_bytes(benchmark::State& state) { state.SetBytesProcessed(state.iterations() * megabytes() * 1'000'000); }

double sum_of(const StateDict& tensors) {
  double sum = 0;
  for (const auto& [name, value] : tensors) {
    sum += value.sum().item();
  }
  return sum;
}

void load_and_read(benchmark::State& state) {
  const File file;
  for (auto _ : state) {
    benchmark::DoNotOptimize(sum_of(load(file.path())));
  }
  count_bytes(state);
}
BENCHMARK(load_and_read)->Unit(benchmark::kMillisecond)->UseRealTime();

void load_and_read_without_hashes(benchmark::State& state) {
  const File file;
  for (auto _ : state) {
    benchmark::DoNotOptimize(sum_of(SafetensorsFile(file.path()).read_all(false)));
  }
  count_bytes(state);
}
BENCHMARK(load_and_read_without_hashes)->Unit(benchmark::kMillisecond)->UseRealTime();

void save_with_fsync(benchmark::State& state) {
  const File file;
  const StateDict tensors = model();
  for (auto _ : state) {
    save(tensors, file.path());
  }
  count_bytes(state);
}
BENCHMARK(save_with_fsync)->Unit(benchmark::kMillisecond)->UseRealTime();

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

// A folder for a run, removed at the end.
class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / ("tandem-bench-run-" + std::to_string(::getpid()))) {}
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string path() const { return path_; }

 private:
  std::filesystem::path path_;
};

void step_that_saves(benchmark::State& state) {
  const char* text = std::getenv("TANDEM_BENCH_STATE_MB");
  const std::int64_t bytes = (text != nullptr ? std::atoll(text) : 100) * 1'000'000;
  const auto width = static_cast<std::int64_t>(std::sqrt(static_cast<double>(bytes) / 12));  // a weight and two moments
  const Folder folder;
  nn::Linear model(width, width);
  optim::Adam adam(model.parameters());
  model(ones({1, width})).sum().backward();
  adam.step();
  checkpoint::Run run(folder.path(), {.every = 1});
  run.track(model, adam);
  const std::vector<char> from(static_cast<std::size_t>(bytes), 1);
  std::vector<char> to(from.size());
  std::vector<double> ratios;
  std::vector<double> writes;
  for (int i = 0; i < 2; ++i) {  // the memory of the copies is kept for the next ones
    run.step();
    run.save();
  }
  for (auto _ : state) {
    auto start = Clock::now();
    std::memcpy(to.data(), from.data(), from.size());
    benchmark::DoNotOptimize(to.data());
    const double copy = seconds_since(start);
    start = Clock::now();
    run.step();
    const double step = seconds_since(start);
    state.SetIterationTime(step);
    ratios.push_back(step / copy);
    start = Clock::now();
    run.save();  // waits for that of the step, and makes another
    writes.push_back(seconds_since(start));
  }
  state.counters["times_memcpy"] = median(ratios);
  state.counters["write_ms"] = 1e3 * median(writes);
}
BENCHMARK(step_that_saves)->Unit(benchmark::kMillisecond)->UseManualTime()->Iterations(20);

void training_with_run(benchmark::State& state) {
  constexpr int kPairs = 100;
  constexpr double kEvery = 500;
  const Folder folder;
  nn::Sequential model(nn::Linear(784, 512), nn::ReLU(), nn::Linear(512, 512), nn::ReLU(), nn::Linear(512, 10));
  optim::Adam adam(model.parameters(), {.lr = 1e-5});
  const std::int64_t batch = state.range(0);
  const bool watches = state.range(1) != 0;
  const Tensor x = rand({batch, 784});
  const Tensor y = randint(0, 10, {batch});
  const auto step = [&] {
    adam.zero_grad();
    Tensor loss = nn::cross_entropy(model(x), y);
    loss.backward();
    adam.step();
    return loss;
  };
  checkpoint::Run run(folder.path(), {.every = 0, .stop_at_nonfinite = watches});
  run.track(model, adam);
  std::vector<double> plain;
  std::vector<double> lost;
  std::vector<double> saves;
  for (auto _ : state) {
    const auto first = Clock::now();
    for (int i = 0; i < kPairs; ++i) {
      double seconds[2] = {};
      for (const bool with_run : {i % 2 == 0, i % 2 != 0}) {
        adam.skip_nonfinite(with_run && watches);
        const auto start = Clock::now();
        const Tensor loss = step();
        if (with_run) {
          run.step(loss);
        }
        seconds[with_run] = seconds_since(start);
      }
      plain.push_back(seconds[0]);
      lost.push_back(seconds[1] - seconds[0]);
    }
    state.SetIterationTime(seconds_since(first));
    const std::clock_t used = std::clock();
    run.save();
    saves.push_back(static_cast<double>(std::clock() - used) / CLOCKS_PER_SEC / num_threads());
  }
  state.counters["step_us"] = 1e6 * median(plain);
  state.counters["lost_us"] = 1e6 * median(lost);
  state.counters["save_us"] = 1e6 * median(saves);
  state.counters["lost_percent"] = 100 * (median(lost) + median(saves) / kEvery) / median(plain);
}
BENCHMARK(training_with_run)
    ->ArgsProduct({{128, 512}, {0, 1}})
    ->Unit(benchmark::kSecond)
    ->UseManualTime()
    ->Iterations(10);

void copy_memory(benchmark::State& state) {
  const std::vector<char> from(static_cast<std::size_t>(megabytes()) * 1'000'000, 1);
  std::vector<char> to(from.size());
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), from.size());
    benchmark::DoNotOptimize(to.data());
  }
  count_bytes(state);
}
BENCHMARK(copy_memory)->Name("memcpy")->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
