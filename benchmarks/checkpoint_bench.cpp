#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <unistd.h>

#include <benchmark/benchmark.h>

#include <tandem/tandem.h>

// Files of tensors: saving and loading a model of TANDEM_BENCH_MB megabytes (default 256), with the page cache warm.
// "memcpy" copies as many bytes, on one thread: the floor of a load that hands out memory of its own.
// peers/load_safetensors.py reads such a file with Python's safetensors.

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
