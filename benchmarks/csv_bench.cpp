#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <random>
#include <string>

#include <unistd.h>

#include <benchmark/benchmark.h>

#include <tandem/core/file.h>
#include <tandem/core/thread_pool.h>
#include <tandem/data/byte_source.h>
#include <tandem/data/csv.h>

// Reading CSV files of 1,000,000 rows with the page cache warm: 20 numbers, or 10 numbers and 10 words. "fields" is
// their number in a second. "bytes" reads the file into memory, which tables of a plain file do not need.
// peers/read_csv.py reads the file of numbers with pandas and polars; `csv_bench --keep FILE` writes it.

namespace {

using namespace tandem;

constexpr int kRows = 1'000'000;
constexpr int kColumns = 20;

void write_table(const std::string& path, int words) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal(0, 100);
  std::string text;
  for (int i = 0; i < kColumns; ++i) {
    text += (i > 0 ? ",x" : "x") + std::to_string(i);
  }
  text += '\n';
  char number[32];
  for (int row = 0; row < kRows; ++row) {
    for (int i = 0; i < kColumns; ++i) {
      std::snprintf(number, sizeof number, i < words ? "%sclass%.0f" : "%s%.6g", i > 0 ? "," : "",
                    i < words ? std::abs(normal(random)) : normal(random));
      text += number;
    }
    text += '\n';
  }
  core::replace_file(path, {text});
}

class Table {
 public:
  explicit Table(int words)
      : path_(std::filesystem::temp_directory_path() / ("tandem-csv-bench-" + std::to_string(::getpid()))) {
    write_table(path_, words);
  }
  ~Table() { std::filesystem::remove(path_); }
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void read_csv(benchmark::State& state) {
  const Table table(static_cast<int>(state.range(0)));
  set_num_threads(static_cast<int>(state.range(1)));
  for (auto _ : state) {
    benchmark::DoNotOptimize(data::read_csv(table.path()).num_rows());
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(std::filesystem::file_size(table.path())));
  state.counters["fields"] = benchmark::Counter(kRows * kColumns, benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(read_csv)
    ->ArgNames({"words", "threads"})
    ->ArgsProduct({{0, 10}, {1, 2}})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

void bytes(benchmark::State& state) {
  const Table table(0);
  for (auto _ : state) {
    benchmark::DoNotOptimize(data::read_file(table.path(), std::int64_t{1} << 40).data());
  }
}
BENCHMARK(bytes)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "--keep") {
    write_table(argv[2], 0);
    return 0;
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
