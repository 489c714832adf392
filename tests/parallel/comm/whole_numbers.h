#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <tandem/tandem.h>

// Values of ranks whose reductions are exact in every type: small whole numbers that differ from rank to rank and from
// place to place. They repeat themselves, because loops over long tensors take long in tests, which are not optimised.

namespace tandem::test {

inline constexpr std::size_t kPeriod = 7;

// One zero among them: minima and products of several ranks still differ from place to place.
inline double whole_number(int rank, std::int64_t i) {
  constexpr double kNumbers[kPeriod] = {0, 1, 2, 3, 1, 2, 1};
  return kNumbers[static_cast<std::size_t>(2 * rank + i) % kPeriod];
}

/// A tensor of `count` elements that repeat the first kPeriod of `numbers`.
inline Tensor repeated(std::vector<double> numbers, std::int64_t count, DType dtype) {
  numbers.resize(static_cast<std::size_t>(count));
  for (std::size_t done = kPeriod; done < numbers.size(); done *= 2) {
    std::memcpy(&numbers[done], numbers.data(), std::min(done, numbers.size() - done) * sizeof(double));
  }
  return from_data(numbers, {count}).to(dtype);
}

/// The numbers of a rank in the places [first, first + count).
inline Tensor whole_numbers(int rank, std::int64_t first, std::int64_t count, DType dtype) {
  std::vector<double> numbers(kPeriod);
  for (std::size_t i = 0; i < kPeriod; ++i) {
    numbers[i] = whole_number(rank, first + static_cast<std::int64_t>(i));
  }
  return repeated(numbers, count, dtype);
}

inline double combine(parallel::ReduceOp op, double a, double b) {
  switch (op) {
    case parallel::ReduceOp::min: return std::min(a, b);
    case parallel::ReduceOp::max: return std::max(a, b);
    case parallel::ReduceOp::product: return a * b;
    default: return a + b;
  }
}

/// The reduction of whole_numbers() of ranks 0 to `ranks` - 1.
inline Tensor reduced(int ranks, std::int64_t first, std::int64_t count, DType dtype, parallel::ReduceOp op) {
  std::vector<double> numbers(kPeriod);
  for (std::size_t i = 0; i < kPeriod; ++i) {
    const auto of = [&](int rank) {
      const double number = whole_number(rank, first + static_cast<std::int64_t>(i));
      return dtype == DType::boolean ? static_cast<double>(number != 0) : number;
    };
    double all = of(0);
    for (int rank = 1; rank < ranks; ++rank) {
      all = combine(op, all, of(rank));
    }
    numbers[i] = op == parallel::ReduceOp::avg ? all / ranks : all;
  }
  return repeated(numbers, count, dtype);
}

}  // namespace tandem::test
