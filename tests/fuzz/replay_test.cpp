#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <ostream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tandem/tensor/factories.h>

#include "fuzz/memory.h"
#include "fuzz/promises.h"
#include "fuzz/targets.h"

// Runs each input in corpus/ once: hand-made seeds and inputs found by fuzzing. Works with any compiler. A broken
// promise ends the program.

namespace tandem::fuzz {
namespace {

namespace fs = std::filesystem;

struct Target {
  const char* name;
  void (*run)(Bytes);
};

void PrintTo(const Target& target, std::ostream* out) { *out << target.name; }

class Corpus : public testing::TestWithParam<Target> {};

TEST_P(Corpus, KeepsThePromises) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(fs::path(TANDEM_FUZZ_CORPUS) / GetParam().name)) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  ASSERT_GT(files.size(), 5U);
  for (const fs::path& path : files) {
    SCOPED_TRACE(path.string());
    std::ifstream in(path, std::ios::binary);
    const std::vector<std::uint8_t> bytes{std::istreambuf_iterator<char>(in), {}};
    GetParam().run(bytes);
    // The address sanitizer catches a reader that reads beyond its end here.
    for (std::size_t length = 0; length < std::min<std::size_t>(bytes.size(), 512); ++length) {
      GetParam().run({std::vector<std::uint8_t>(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length))});
    }
  }
}

// A file so large that twice its size is far more than the extra mebibyte.
std::vector<std::uint8_t> large_file(std::string_view header, std::string_view piece, std::size_t pieces) {
  std::vector<std::uint8_t> file(header.begin(), header.end());
  for (std::size_t i = 0; i < pieces; ++i) {
    file.insert(file.end(), piece.begin(), piece.end());
  }
  return file;
}

TEST(LargeFiles, NeedTwiceTheirSizeAtMost) {
  constexpr std::size_t kCount = 1U << 20U;
  const std::string dictionary = "{'descr': '>f4', 'fortran_order': True, 'shape': (1024, 1024), }\n";
  npy(large_file(std::string("\x93NUMPY\1\0", 8) + static_cast<char>(dictionary.size()) + '\0' + dictionary, "abcd",
                 kCount));
  idx(large_file(std::string("\0\0\x0D\2\0\0\4\0\0\0\4\0", 12), "abcd", kCount));
  std::string json = "{";
  for (int i = 0; i < 30'000; ++i) {
    json +=
        fmt::format("\"{}\":{{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1],\"data_offsets\":[{},{}]}},", i, i, i + 1);
  }
  json.back() = '}';
  const std::uint64_t length = json.size();
  safetensors(large_file({reinterpret_cast<const char*>(&length), sizeof length}, json + std::string(30'000, 'x'), 1));
  safetensors(large_file(std::string("\0\0\0\1\0\0\0\0", 8) + "{\"", "abcd", kCount));  // a name without end
  csv(large_file("Aa,b,c,d,e,f\n", "1234567.25,2345678.5,3456789.75,4567890.25,5678901.5,6789012.75\n", 60'000));
}

TEST(MemoryWatch, SeesTheMostThatWasAllocatedAtOnce) {
  if (!MemoryWatch::counts()) GTEST_SKIP() << "only with the address sanitizer";
  const MemoryWatch watch;
  for (int i = 0; i < 3; ++i) {
    const Tensor tensor = zeros({1000});
    const std::vector<char> bytes(500);
  }
  EXPECT_GE(watch.peak(), 4500U);
  EXPECT_LT(watch.peak(), 9000U);
}

TEST(Promises, AreEnforced) {
  EXPECT_DEATH(check_promises(1, [] { throw std::runtime_error("not tandem's"); }), "not tandem's");
  EXPECT_DEATH(check_promises(1, [] { throw Error(std::string(3000, 'x')); }), "one screen");
  if (MemoryWatch::counts()) {
    EXPECT_DEATH(check_promises(1000, [] { const std::vector<char> much(1'100'000); }), "twice the file");
  }
}

const Target kTargets[] = {
    {"csv", csv},
    {"environment", environment},
    {"frames", frames},
    {"gzip", gzip},
    {"idx", idx},
    {"npy", npy},
    {"safetensors", safetensors},
#ifdef TANDEM_FUZZ_CLI
    {"cli", cli},
#endif
#ifdef TANDEM_FUZZ_RUN_FLAGS
    {"run_flags", run_flags},
#endif
};

INSTANTIATE_TEST_SUITE_P(Fuzz, Corpus, testing::ValuesIn(kTargets),
                         [](const auto& target) { return std::string(target.param.name); });

}  // namespace
}  // namespace tandem::fuzz
