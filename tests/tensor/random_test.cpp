#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/autograd/ops.h>
#include <tandem/core/error.h>
#include <tandem/core/grad_mode.h>
#include <tandem/tensor/factories.h>

#include "support/message.h"
#include "support/thread_count.h"

namespace tandem {
namespace {

using test::message_of;
using Doubles = std::vector<double>;
using Ints = std::vector<std::int64_t>;

// The first draws of a seed, of several kinds.
std::vector<Doubles> draws(std::uint64_t seed) {
  Generator generator(seed);
  const GeneratorScope scope(generator);
  return {rand({20'001}).to_vector<double>(), randn({20'001}).to_vector<double>(),
          randint(-5, 100, {20'001}).to_vector<double>(), randperm(1000).to_vector<double>(),
          dropout(ones({20'001}), 0.3).to_vector<double>()};
}

TEST(Seed, FixesEveryNumberForAnyNumberOfThreads) {
  std::vector<std::vector<Doubles>> runs;
  for (const int count : {1, 2, 3, 5}) {
    const test::ThreadCount threads(count);
    runs.push_back(draws(42));
  }
  for (const auto& run : runs)
    EXPECT_TRUE(run == runs[0]);
  EXPECT_FALSE(draws(43) == runs[0]);
}

TEST(Seed, RestartsTheSequence) {
  manual_seed(7);
  const Doubles first = rand({5}).to_vector<double>();
  const Doubles second = rand({5}).to_vector<double>();
  EXPECT_NE(first, second);
  manual_seed(7);
  EXPECT_EQ(rand({5}).to_vector<double>(), first);
  EXPECT_EQ(rand({5}).to_vector<double>(), second);
}

TEST(Seed, AnyTwoGiveDifferentNumbers) {
  std::set<Doubles> seen;
  for (const std::uint64_t seed : {0ull, 1ull, 2ull, 0x100000000ull, ~0ull, ~0ull - 1}) {
    Generator generator(seed);
    const GeneratorScope scope(generator);
    seen.insert(rand({8}).to_vector<double>());
  }
  EXPECT_EQ(seen.size(), 6u);
}

TEST(Generator, StateIsSeedAndOffset) {
  Generator generator(11);
  const GeneratorScope scope(generator);
  rand({101});
  randn({3});
  const std::uint64_t offset = generator.offset();
  EXPECT_GT(offset, 0u);
  const Doubles expected = randn({50}).to_vector<double>();
  Generator restored(11);
  restored.set_offset(offset);
  const GeneratorScope inner(restored);
  EXPECT_EQ(randn({50}).to_vector<double>(), expected);
}

TEST(Generator, DrawsDoNotOverlap) {
  Generator generator(3);
  const GeneratorScope scope(generator);
  // These lengths leave a part of a block unused.
  std::set<double> seen;
  std::size_t drawn = 0;
  for (const std::int64_t count : {1, 3, 2, 7, 1, 5}) {
    for (const double value : rand({count}, {.dtype = DType::f64}).to_vector<double>()) {
      seen.insert(value);
      ++drawn;
    }
  }
  EXPECT_EQ(seen.size(), drawn);
}

TEST(Generator, NothingIsDrawnForNothing) {
  Generator generator(3);
  const GeneratorScope scope(generator);
  rand({0});
  randperm(0);
  randperm(1);
  dropout(ones({3}), 0.0);
  dropout(ones({3}), 0.5, false);
  EXPECT_EQ(generator.offset(), 0u);
}

TEST(GeneratorScope, IsTheThreadsAndNests) {
  Generator outer(1);
  Generator inner(2);
  Generator& process = current_generator();
  {
    const GeneratorScope first(outer);
    EXPECT_EQ(&current_generator(), &outer);
    {
      const GeneratorScope second(inner);
      EXPECT_EQ(&current_generator(), &inner);
      manual_seed(9);
      EXPECT_EQ(inner.seed(), 9u);
    }
    EXPECT_EQ(&current_generator(), &outer);
    Generator* elsewhere = nullptr;
    std::jthread([&] { elsewhere = &current_generator(); }).join();
    EXPECT_EQ(elsewhere, &process);
  }
  EXPECT_EQ(outer.seed(), 1u);
  EXPECT_EQ(&current_generator(), &process);
}

TEST(Generator, ReservesRangesForManyThreads) {
  Generator generator;
  std::vector<std::uint64_t> starts(4 * 500);
  {
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (std::size_t i = 0; i < 500; ++i)
          starts[t * 500 + i] = generator.reserve(3);
      });
    }
  }
  std::sort(starts.begin(), starts.end());
  for (std::size_t i = 0; i < starts.size(); ++i)
    ASSERT_EQ(starts[i], 3 * i);
}

TEST(Rand, TypesDrawTheSameNumbers) {
  Generator generator(5);
  const GeneratorScope scope(generator);
  const auto again = [&](auto&& draw) {
    generator.set_offset(0);
    return draw();
  };
  const Doubles wide = again([] { return rand({1000}, {.dtype = DType::f64}).to_vector<double>(); });
  const Doubles narrow = again([] { return rand({1000}).to_vector<double>(); });
  for (std::size_t i = 0; i < wide.size(); ++i)
    ASSERT_NEAR(wide[i], narrow[i], 0x1p-24);
  const Doubles wide_n = again([] { return randn({1000}, {.dtype = DType::f64}).to_vector<double>(); });
  const Doubles narrow_n = again([] { return randn({1000}).to_vector<double>(); });
  for (std::size_t i = 0; i < wide_n.size(); ++i)
    ASSERT_NEAR(wide_n[i], narrow_n[i], 4e-7 * std::abs(wide_n[i]));
}

// Kolmogorov's distance between draws and a distribution function. One seed in a thousand exceeds 1.95 / sqrt(n).
template <class Cdf>
double distance(Doubles values, Cdf&& cdf) {
  std::sort(values.begin(), values.end());
  const auto count = static_cast<double>(values.size());
  double largest = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double p = cdf(values[i]);
    largest = std::max({largest, p - static_cast<double>(i) / count, static_cast<double>(i + 1) / count - p});
  }
  return largest * std::sqrt(count);
}

double correlation(const Doubles& x, std::size_t lag) {
  const double mean = std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
  double product = 0;
  double square = 0;
  for (std::size_t i = 0; i + lag < x.size(); ++i) {
    product += (x[i] - mean) * (x[i + lag] - mean);
    square += (x[i] - mean) * (x[i] - mean);
  }
  return product / square;
}

TEST(Rand, IsUniform) {
  Generator generator(2024);
  const GeneratorScope scope(generator);
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Doubles x = rand({100'000}, {.dtype = dtype}).to_vector<double>();
    EXPECT_LT(distance(x, [](double v) { return v; }), 1.95);
    EXPECT_GE(*std::min_element(x.begin(), x.end()), 0);
    EXPECT_LT(*std::max_element(x.begin(), x.end()), 1);
    for (const std::size_t lag : {1u, 2u, 3u, 4u})
      EXPECT_LT(std::abs(correlation(x, lag)), 0.013);
  }
}

TEST(Randn, IsNormal) {
  Generator generator(2024);
  const GeneratorScope scope(generator);
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Doubles x = randn({100'000}, {.dtype = dtype}).to_vector<double>();
    EXPECT_LT(distance(x, [](double v) { return 0.5 * std::erfc(-v / std::sqrt(2.0)); }), 1.95);
    double sum = 0, squares = 0, fourth = 0;
    for (const double v : x) {
      sum += v;
      squares += v * v;
      fourth += v * v * v * v;
    }
    EXPECT_NEAR(sum / 1e5, 0, 0.0125);
    EXPECT_NEAR(squares / 1e5, 1, 0.018);
    EXPECT_NEAR(fourth / 1e5, 3, 0.15);
    for (const std::size_t lag : {1u, 2u})
      EXPECT_LT(std::abs(correlation(x, lag)), 0.013);
  }
  const Doubles shifted = empty({10'000}).normal_(5, 0.1).to_vector<double>();
  EXPECT_NEAR(std::accumulate(shifted.begin(), shifted.end(), 0.0) / 1e4, 5, 0.005);
  EXPECT_EQ(empty({3}).normal_(2, 0).to_vector<double>(), (Doubles{2, 2, 2}));
}

TEST(Randint, StaysInItsBoundsAndReachesThem) {
  Generator generator(1);
  const GeneratorScope scope(generator);
  for (const DType dtype : {DType::i64, DType::i32, DType::f32, DType::f64}) {
    const Doubles x = randint(-2, 3, {1000}, {.dtype = dtype}).to_vector<double>();
    EXPECT_EQ(std::set<double>(x.begin(), x.end()), (std::set<double>{-2, -1, 0, 1, 2}));
  }
  EXPECT_EQ(randint(4, 5, {3}).to_vector<std::int64_t>(), (Ints{4, 4, 4}));
  const Doubles bytes = randint(0, 256, {5000}, {.dtype = DType::u8}).to_vector<double>();
  EXPECT_EQ(*std::max_element(bytes.begin(), bytes.end()), 255);
  EXPECT_EQ(randint(0, 2, {50}, {.dtype = DType::boolean}).dtype(), DType::boolean);
  EXPECT_EQ(randint(0, 9, {2}).dtype(), DType::i64);
  EXPECT_EQ(randint(0, 9, {2}, {.device = "cpu:1"}).device(), Device("cpu:1"));
  EXPECT_EQ(randint(0, 9, {2}, {.device = "cpu:1"}).dtype(), DType::i64);
}

TEST(Randint, CountsAreEven) {
  Generator generator(77);
  const GeneratorScope scope(generator);
  std::vector<double> counts(10);
  for (const std::int64_t value : randint(0, 10, {100'000}).to_vector<std::int64_t>()) {
    ++counts[static_cast<std::size_t>(value)];
  }
  double chi_square = 0;
  for (const double count : counts)
    chi_square += (count - 1e4) * (count - 1e4) / 1e4;
  EXPECT_LT(chi_square, 27.9);  // 9 degrees of freedom; one seed in a thousand exceeds this
}

TEST(Randint, RefusesEmptyAndUnrepresentableRanges) {
  EXPECT_EQ(message_of<ConfigError>([] { randint(3, 3, {1}); }), "randint: [3, 3) is empty");
  EXPECT_THROW(randint(3, 2, {1}), ConfigError);
  EXPECT_THROW(randint(0, (std::int64_t{1} << 53) + 2, {1}), ConfigError);
  EXPECT_EQ(message_of<ConfigError>([] { randint(0, 257, {1}, {.dtype = DType::u8}); }),
            "randint: [0, 257) is not inside [0, 256), what u8 can draw");
  EXPECT_THROW(randint(-1, 5, {1}, {.dtype = DType::u8}), ConfigError);
  EXPECT_THROW(randint(0, 3, {1}, {.dtype = DType::boolean}), ConfigError);
  EXPECT_THROW(randint(0, std::int64_t{1} << 32, {1}, {.dtype = DType::i32}), ConfigError);
  EXPECT_THROW(randint(0, (1 << 24) + 2, {1}, {.dtype = DType::f32}), ConfigError) << "f32 would round to the end";
}

TEST(Randperm, IsAPermutation) {
  Generator generator(4);
  const GeneratorScope scope(generator);
  for (const std::int64_t count : {0, 1, 2, 3, 10, 1000}) {
    Ints order = randperm(count).to_vector<std::int64_t>();
    std::sort(order.begin(), order.end());
    Ints expected(static_cast<std::size_t>(count));
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(order, expected);
  }
  EXPECT_NE(randperm(100).to_vector<std::int64_t>(), randperm(100).to_vector<std::int64_t>());
  EXPECT_THROW(randperm(-1), ConfigError);
}

TEST(Randperm, AllOrdersAreEquallyLikely) {
  Generator generator(8);
  const GeneratorScope scope(generator);
  std::vector<double> counts(27);
  for (int i = 0; i < 6000; ++i) {
    const Ints p = randperm(3).to_vector<std::int64_t>();
    ++counts[static_cast<std::size_t>(p[0] * 9 + p[1] * 3 + p[2])];
  }
  double chi_square = 0;
  for (const double count : counts)
    chi_square += count == 0 ? 0 : (count - 1000) * (count - 1000) / 1000;
  EXPECT_EQ(std::count(counts.begin(), counts.end(), 0.0), 21);
  EXPECT_LT(chi_square, 20.5);  // 5 degrees of freedom
}

TEST(UniformInPlace, FillsViewsAndTheirElementsAlone) {
  Tensor x = zeros({4, 6});
  x.slice(1, 0, 6, 2).uniform_(2, 3);
  for (std::int64_t i = 0; i < 4; ++i) {
    for (std::int64_t j = 0; j < 6; ++j) {
      const double value = x[i][j].item();
      EXPECT_TRUE(j % 2 == 0 ? value >= 2 && value < 3 : value == 0);
    }
  }
}

TEST(UniformInPlace, RefusesWhatItCannotDo) {
  Tensor x = zeros({2});
  EXPECT_EQ(message_of<ConfigError>([&] { x.uniform_(1, 0); }), "uniform_: [1, 0) is empty");
  EXPECT_THROW(x.uniform_(0, NAN), ConfigError);
  EXPECT_THROW(x.uniform_(0, INFINITY), ConfigError);
  EXPECT_THROW(x.uniform_(-3e38, 3e38), ConfigError) << "the width is no f32";
  EXPECT_THROW(x.normal_(0, -1), ConfigError);
  EXPECT_THROW(x.normal_(0, NAN), ConfigError);
  EXPECT_EQ(message_of<DTypeError>([] { arange(3).uniform_(); }), "uniform_: needs floating point, got i64");
  EXPECT_EQ(message_of<DTypeError>([] { rand({2}, {.dtype = DType::i64}); }), "rand: needs floating point, got i64");
  EXPECT_THROW(randn({2}, {.dtype = DType::u8}), DTypeError);
  Tensor leaf = zeros({2}, {.requires_grad = true});
  EXPECT_EQ(message_of<AutogradError>([&] { leaf.uniform_(); }),
            "uniform_: the tensor requires a gradient; do this under NoGradGuard");
  const NoGradGuard no_grad;
  EXPECT_NO_THROW(leaf.uniform_());
}

}  // namespace
}  // namespace tandem
