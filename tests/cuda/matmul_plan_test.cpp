#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/core/cuda.h>
#include <tandem/core/error.h>
#include <tandem/kernels/cuda/matmul/plan_store.h>
#include <tandem/kernels/matmul.h>
#include <tandem/kernels/matmul_tuning.h>

#include "support/message.h"
#include "support/temp_dir.h"

// Tests of the keys and the text of matrix product plans. Needs no GPU.

namespace tandem::kernels::gpu {
namespace {

using test::message_of;
using test::read_text;
using test::TempDir;
using ::testing::HasSubstr;
using ::testing::StartsWith;

PlanRecord example() {
  PlanRecord record;
  record.key = {.m = 64,
                .n = 128,
                .k = 256,
                .lda = 256,
                .ldb = 257,
                .ldd = 128,
                .batch = 1,
                .a_step = 0,
                .b_step = 0,
                .d_step = 0,
                .type = static_cast<std::int32_t>(DType::bf16),
                .a_transposed = 0,
                .b_transposed = 1,
                .fused = static_cast<std::int32_t>(Fused::relu_bits_bias),
                .accumulate = 0,
                .tf32 = 0,
                .a_align = 256,
                .b_align = 2,
                .d_align = 16,
                .bias_align = 64,
                .bits_align = 32,
                .deterministic = 1};
  record.version = 130100;
  record.workspace = 4096;
  record.kernels = 1;
  record.time_us = 12.25;
  record.algorithm = {1, 2, 3, 4, 5, 6, 7, 0xFEDCBA9876543210u};
  record.gpu = "NVIDIA H200";
  return record;
}

constexpr std::string_view kHeader =
    "tandem matmul plans 3\n"
    "m n k lda ldb ldd batch a_step b_step d_step type a_transposed b_transposed fused accumulate tf32 a_align b_align "
    "d_align bias_align bits_align deterministic cublaslt workspace kernels time_us algorithm gpu\n";
constexpr std::string_view kLine =
    "64 128 256 256 257 128 1 0 0 0 bf16 0 1 relu_bits_bias 0 0 256 2 16 64 32 1 130100 4096 1 12.25 "
    "0000000000000001:0000000000000002:0000000000000003:0000000000000004:0000000000000005:0000000000000006:"
    "0000000000000007:fedcba9876543210 NVIDIA H200\n";

std::string text_of(std::string_view line) { return std::string(kHeader) + std::string(line); }

// ---- keys ----

TEST(PlanKey, EveryFieldMatters) {
  const PlanKey key = example().key;
  std::vector<PlanKey> others;
  for (const auto field : {&PlanKey::m, &PlanKey::n, &PlanKey::k, &PlanKey::lda, &PlanKey::ldb, &PlanKey::ldd,
                           &PlanKey::batch, &PlanKey::a_step, &PlanKey::b_step, &PlanKey::d_step}) {
    others.push_back(key);
    others.back().*field ^= 512;
  }
  for (const auto field : {&PlanKey::type, &PlanKey::a_transposed, &PlanKey::b_transposed, &PlanKey::fused,
                           &PlanKey::accumulate, &PlanKey::tf32, &PlanKey::a_align, &PlanKey::b_align,
                           &PlanKey::d_align, &PlanKey::bias_align, &PlanKey::bits_align, &PlanKey::deterministic}) {
    others.push_back(key);
    others.back().*field ^= 1;
  }
  ASSERT_EQ(sizeof(PlanKey), 10 * sizeof(std::int64_t) + (others.size() - 10) * sizeof(std::int32_t));
  std::set<std::size_t> hashes{PlanKeyHash()(key)};
  for (std::size_t i = 0; i < others.size(); ++i) {
    EXPECT_FALSE(others[i] == key) << i;
    EXPECT_TRUE(hashes.insert(PlanKeyHash()(others[i])).second) << i;
  }
  EXPECT_TRUE(example().key == key);
  EXPECT_EQ(PlanKeyHash()(example().key), PlanKeyHash()(key));
}

TEST(PlanKey, HashesOfNearShapesDiffer) {
  std::set<std::size_t> hashes;
  std::size_t count = 0;
  PlanKey key = example().key;
  for (key.m = 1; key.m <= 20; ++key.m) {
    for (key.n = 1; key.n <= 20; ++key.n) {
      for (key.k = 1; key.k <= 20; ++key.k, ++count) {
        hashes.insert(PlanKeyHash()(key));
      }
    }
  }
  EXPECT_EQ(hashes.size(), count);
}

TEST(PlanKey, AlignmentIsTheLargestPowerOfTwoThatHoldsForTheWholeBatch) {
  const auto at = [](std::uintptr_t address, std::int64_t step = 0) {
    return alignment_of(reinterpret_cast<const void*>(address), step);
  };
  EXPECT_EQ(at(0), 256);
  EXPECT_EQ(at(4096), 256);
  EXPECT_EQ(at(4096 + 128), 128);
  EXPECT_EQ(at(4096 + 16), 16);
  EXPECT_EQ(at(4096 + 6), 2);
  EXPECT_EQ(at(4096 + 1), 1);
  EXPECT_EQ(at(4096, 512), 256);
  EXPECT_EQ(at(4096, 12), 4);
  EXPECT_EQ(at(4096 + 8, 64), 8);
}

TEST(PlanKey, ThePlainProductOfAKey) {
  const PlanKey key = example().key;
  EXPECT_TRUE(has_bias(key) && has_relu(key) && writes_bits(key));
  PlanKey expected = key;
  expected.fused = static_cast<std::int32_t>(Fused::nothing);
  expected.bias_align = expected.bits_align = 256;
  EXPECT_TRUE(plain(key) == expected);
  EXPECT_TRUE(plain(expected) == expected);
  EXPECT_FALSE(has_bias(expected) || has_relu(expected) || has_bits(expected));
}

TEST(PlanKey, EachStepToAPlainProductHasLess) {
  const auto steps = [](Fused fused) {
    std::vector<Fused> found;
    for (PlanKey key = with_fused(example().key, fused); fused_of(key) != Fused::nothing;) {
      key = simpler(key);
      EXPECT_EQ(key.bias_align, has_bias(key) ? 64 : 256);
      EXPECT_EQ(key.bits_align, has_bits(key) ? 32 : 256);
      found.push_back(fused_of(key));
    }
    return found;
  };
  using Steps = std::vector<Fused>;
  EXPECT_EQ(steps(Fused::relu_bits_bias), (Steps{Fused::relu_bias, Fused::nothing}));
  EXPECT_EQ(steps(Fused::relu_bits), (Steps{Fused::relu, Fused::nothing}));
  EXPECT_EQ(steps(Fused::mask_sums), (Steps{Fused::mask, Fused::nothing}));
  for (const Fused fused : {Fused::bias, Fused::relu, Fused::relu_bias, Fused::mask, Fused::a_sums}) {
    EXPECT_EQ(steps(fused), Steps{Fused::nothing});
  }
}

// ---- text ----

TEST(PlanFile, HasOneLineForEachPlan) {
  EXPECT_EQ(write_plans(std::vector{example()}), text_of(kLine));
  EXPECT_EQ(write_plans({}), kHeader);
  EXPECT_THAT(parse_plans(kHeader, "p"), ::testing::IsEmpty());
}

TEST(PlanFile, RoundTripsAndSorts) {
  std::vector<PlanRecord> records;
  for (std::int64_t m : {100, 9, 20}) {
    for (const Fused fused : {Fused::bias, Fused::relu, Fused::relu_bias, Fused::relu_bits, Fused::relu_bits_bias,
                              Fused::mask, Fused::mask_sums, Fused::a_sums, Fused::nothing}) {
      for (const DType type : {DType::f32, DType::f64, DType::f16}) {
        PlanRecord record = example();
        record.key.m = m;
        record.key.fused = static_cast<std::int32_t>(fused);
        record.key.type = static_cast<std::int32_t>(type);
        record.time_us = 1.0 / static_cast<double>(m);
        record.separate = fused == Fused::bias;
        if (record.separate) {
          record.workspace = 0;
          record.algorithm = {};
        }
        records.push_back(record);
      }
    }
  }
  records.push_back(example());
  records.back().gpu = "Another GPU";
  const std::string text = write_plans(records);
  const std::vector<PlanRecord> read = parse_plans(text, "p");
  EXPECT_TRUE(std::is_permutation(read.begin(), read.end(), records.begin(), records.end()));
  EXPECT_TRUE(std::is_sorted(read.begin(), read.end(), [](const auto& x, const auto& y) { return x.key.m < y.key.m; }));
  std::reverse(records.begin(), records.end());
  EXPECT_EQ(write_plans(records), text);
}

struct Corrupt {
  std::string_view from, to;
  std::string_view message;
};

class CorruptLine : public ::testing::TestWithParam<Corrupt> {};

TEST_P(CorruptLine, IsRefusedWithItsPlace) {
  std::string text = text_of(kLine);
  const std::size_t at = text.find(GetParam().from, kHeader.size());
  ASSERT_NE(at, std::string::npos);
  text.replace(at, GetParam().from.size(), GetParam().to);
  const std::string message = message_of<IoError>([&] { parse_plans(text, "some/file"); });
  EXPECT_THAT(message, StartsWith("some/file:3: "));
  EXPECT_THAT(message, HasSubstr(std::string(GetParam().message)));
}

INSTANTIATE_TEST_SUITE_P(
    All, CorruptLine,
    ::testing::Values(
        Corrupt{"64 128", "0 128", "m is 0, expected 1 to"}, Corrupt{"64 128", "-64 128", "m is -64"},
        Corrupt{"64 128", "064 128", "not written by"}, Corrupt{"64 128", "64  128", "n: expected a number"},
        Corrupt{"64 128", " 64 128", "m: expected a number"}, Corrupt{"64 128", "64x 128", "m: expected a number"},
        Corrupt{"64 128", "99999999999999999999 128", "m: expected a number"},
        Corrupt{"64 128", "281474976710657 128", "m is 281474976710657"}, Corrupt{"128 1 0", "128 0 0", "batch is 0"},
        Corrupt{"128 1 0", "128 2147483648 0", "batch is 2147483648"}, Corrupt{"1 0 0 0", "1 -1 0 0", "a_step is -1"},
        Corrupt{"bf16", "i32", "type: expected a word"}, Corrupt{"bf16", "", "type: expected a word"},
        Corrupt{"bf16 0 1", "bf16 2 1", "a_transposed is 2"},
        Corrupt{"relu_bits_bias", "gelu", "fused: expected a word"}, Corrupt{"256 2 16", "512 2 16", "a_align is 512"},
        Corrupt{"256 2 16", "256 3 16", "b_align is 3"}, Corrupt{"256 2 16", "256 2 0", "d_align is 0"},
        Corrupt{"130100", "0", "cublaslt is 0"}, Corrupt{"4096 1 12", "33554433 1 12", "workspace is 33554433"},
        Corrupt{"4096 1 12", "4096 0 12", "kernels is 0"}, Corrupt{"4096 1 12", "4096 1001 12", "kernels is 1001"},
        Corrupt{"12.25", "0", "time_us is 0"}, Corrupt{"12.25", "-1", "time_us is -1"},
        Corrupt{"12.25", "nan", "time_us is nan"}, Corrupt{"12.25", "inf", "time_us is inf"},
        Corrupt{"12.25", "1e300", "time_us is"}, Corrupt{"12.25", "12.250", "not written by"},
        Corrupt{"0000000000000001:", "", "algorithm: expected 8 words"},
        Corrupt{"0000000000000001:", "000000000000000g:", "algorithm: expected 8 words"},
        Corrupt{"0000000000000001:", "-000000000000001:", "algorithm: expected 8 words"},
        Corrupt{"0000000000000001:", "0000000000000001 ", "algorithm: expected 8 words"},
        Corrupt{"0000000000000001:", "0000000000000001-", "not written by"},
        Corrupt{"fedcba98", "FEDCBA98", "not written by"}, Corrupt{" NVIDIA H200", "", "gpu: expected the name"},
        Corrupt{"NVIDIA H200", "", "gpu: expected the name"}, Corrupt{"H200", "H200\r", "gpu: expected the name"},
        Corrupt{"H200", "H\t200", "gpu: expected the name"}, Corrupt{" 1 0 0 0 bf16", "", "expected"},
        Corrupt{kLine.substr(10), "\n", "the line ends before"}, Corrupt{kLine, "\n", "m: expected a number"}));

TEST(PlanFile, APlainProductHasAnAlgorithm) {
  PlanRecord record = example();
  record.separate = true;
  EXPECT_THAT(message_of<IoError>([&] { parse_plans(write_plans(std::vector{record}), "p"); }),
              StartsWith("p:3: algorithm"));
  record.workspace = 0;
  record.algorithm = {};
  EXPECT_EQ(parse_plans(write_plans(std::vector{record}), "p"), std::vector{record});
  record.key = plain(record.key);
  EXPECT_THAT(message_of<IoError>([&] { parse_plans(write_plans(std::vector{record}), "p"); }),
              StartsWith("p:3: algorithm"));
}

TEST(PlanFile, HeadersAndEndsAreChecked) {
  const auto message = [](std::string_view text) { return message_of<IoError>([&] { parse_plans(text, "p"); }); };
  const std::string good = text_of(kLine);
  EXPECT_THAT(message(""), StartsWith("p:1: the file ends"));
  EXPECT_THAT(message("\n"), StartsWith("p:1: expected 'tandem matmul plans 3'"));
  EXPECT_THAT(message("tandem matmul plans 2\n"), StartsWith("p:1: expected 'tandem matmul plans 3'"));
  EXPECT_THAT(message("tandem matmul plans 3\n"), StartsWith("p:2: the file ends"));
  EXPECT_THAT(message("tandem matmul plans 3\nm n\n"), StartsWith("p:2: expected 'm n k"));
  EXPECT_THAT(message(good.substr(0, good.size() - 1)), StartsWith("p:3: the line has no end"));
  EXPECT_THAT(message(good + std::string(kLine)), StartsWith("p:4: an earlier line is about the same"));
  EXPECT_THAT(message(std::string(kHeader) + std::string(1025, '1') + "\n"), StartsWith("p:3: more than 1024"));
  EXPECT_THAT(message(std::string((std::size_t{16} << 20) + 1, '\n')), HasSubstr("more than 16777216 bytes"));
}

// Every accepted text must have a single meaning: writing the plan again gives the same text.
TEST(PlanFile, NoChangedByteGoesUnnoticed) {
  const std::string good = text_of(kLine);
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (const char c : std::string_view("0 19a.-:\n\r\0x\xFF", 13)) {
      std::string text = good;
      text[i] = c;
      try {
        EXPECT_EQ(write_plans(parse_plans(text, "p")), text) << i;
      } catch (const IoError&) {
      }
    }
    EXPECT_TRUE(i == kHeader.size() || !message_of<IoError>([&] { parse_plans(good.substr(0, i), "p"); }).empty());
  }
}

// ---- files ----

TEST(MatmulPlans, SaveAndLoad) {
  const TempDir dir;
  const std::size_t saved = cuda::save_matmul_plans(dir.file("plans"));
  EXPECT_EQ(parse_plans(read_text(dir.file("plans")), "p").size(), saved);
  EXPECT_THROW(cuda::save_matmul_plans(dir.file("no/folder")), IoError);
}

TEST(MatmulPlans, ThoseOfOtherGpusAndVersionsAreCounted) {
  const TempDir dir;
  std::vector<PlanRecord> records(3, example());
  records[0].gpu = "Nobody's GPU";
  records[1].version = 1;
  records[1].gpu = cuda::is_available() ? cuda::device_name(0) : "any";
  records[2].gpu = "Nobody's GPU";
  records[2].version = 1;
  dir.write("plans", write_plans(records));
  const std::size_t before = cuda::save_matmul_plans(dir.file("before"));
  const cuda::LoadedMatmulPlans plans = cuda::load_matmul_plans(dir.file("plans"));
  EXPECT_EQ(plans.loaded, 0u);
  EXPECT_EQ(plans.skipped, 3u);
  EXPECT_EQ(cuda::save_matmul_plans(dir.file("after")), before);
}

TEST(MatmulPlans, WhatCannotBeReadSaysWhy) {
  const TempDir dir;
  const auto message = [](const std::string& path) {
    return message_of<IoError>([&] { cuda::load_matmul_plans(path); });
  };
  EXPECT_THAT(message(dir.file("missing")), HasSubstr("No such file"));
  EXPECT_THAT(message(dir.path()), HasSubstr("a directory"));
  EXPECT_THAT(message("/dev/zero"), HasSubstr("a device"));
  EXPECT_THAT(message(dir.write("bad", text_of("x\n"))), StartsWith(dir.file("bad") + ":3: "));
}

// ---- the switch ----

// The environment is read once, so each value needs a fresh process.
int answer_for(const char* variable, bool (*answer)(), const char* value) {
  value == nullptr ? unsetenv(variable) : setenv(variable, value, 1);
  try {
    return answer() ? 1 : 0;
  } catch (const ConfigError&) {
    return 2;
  }
}

void expect_answer(const char* variable, bool (*answer)(), const char* value, int expected) {
  EXPECT_EXIT(std::_Exit(answer_for(variable, answer, value)), ::testing::ExitedWithCode(expected), "")
      << variable << " " << (value == nullptr ? "unset" : value);
}

TEST(MatmulTuningDeathTest, SwitchesFollowTheEnvironment) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::pair<const char*, bool (*)()> switches[] = {{"TANDEM_CUDA_TUNING", &cuda::kernel_tuning},
                                                         {"TANDEM_CUDA_FUSED_BACKWARD", &cuda::fused_backward},
                                                         {"TANDEM_CUDA_SMALL_PRODUCTS", &cuda::small_products}};
  for (const auto& [variable, answer] : switches) {
    expect_answer(variable, answer, nullptr, answer == &cuda::kernel_tuning ? 0 : 1);
    expect_answer(variable, answer, "0", 0);
    expect_answer(variable, answer, "1", 1);
    expect_answer(variable, answer, "yes", 2);
    expect_answer(variable, answer, "", 2);
  }
}

TEST(MatmulTuning, IsWhatWasSetLast) {
  cuda::set_kernel_tuning(true);
  EXPECT_TRUE(cuda::kernel_tuning());
  cuda::set_kernel_tuning(false);
  EXPECT_FALSE(cuda::kernel_tuning());
}

TEST(FusedBackward, IsForGpus) {
  const Device gpu(DeviceType::cuda, 0);
  cuda::set_fused_backward(true);
  EXPECT_TRUE(fuses_backward(gpu));
  EXPECT_FALSE(fuses_backward(Device("cpu")));
  cuda::set_fused_backward(false);
  EXPECT_FALSE(fuses_backward(gpu));
  cuda::set_fused_backward(true);
}

TEST(FusedBackward, KeepsBitsForFastProducts) {
  const Device gpu(DeviceType::cuda, 0);
  cuda::set_fused_backward(true);
  EXPECT_TRUE(writes_relu_bits(gpu, DType::bf16));
  EXPECT_TRUE(writes_relu_bits(gpu, DType::f16));
  EXPECT_FALSE(writes_relu_bits(gpu, DType::f32));
  EXPECT_FALSE(writes_relu_bits(gpu, DType::f64));
  EXPECT_FALSE(writes_relu_bits(Device("cpu"), DType::bf16));
  set_float32_matmul_precision("high");
  EXPECT_TRUE(writes_relu_bits(gpu, DType::f32));
  set_float32_matmul_precision("highest");
  cuda::set_fused_backward(false);
  EXPECT_FALSE(writes_relu_bits(gpu, DType::bf16));
  cuda::set_fused_backward(true);
}

}  // namespace
}  // namespace tandem::kernels::gpu
