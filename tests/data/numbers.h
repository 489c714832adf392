#pragma once

#include <cstdint>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include <tandem/autograd/ops.h>
#include <tandem/core/error.h>
#include <tandem/data/loader.h>
#include <tandem/tensor/factories.h>

namespace tandem::test {

using Indices = std::vector<std::int64_t>;

// A data set in which sample i is i; with `noise`, x has random digits after the decimal point.
class Numbers : public data::Dataset {
 public:
  explicit Numbers(std::int64_t size, bool noise = false) : size_(size), noise_(noise) {}
  std::int64_t size() const override { return size_; }
  data::Example get(std::int64_t index) const override {
    Tensor x = full({1}, static_cast<double>(index));
    return {noise_ ? x + rand({1}) : x, full({}, static_cast<double>(index), {.dtype = DType::i64})};
  }

 private:
  std::int64_t size_;
  bool noise_;
};

// A data set that throws at some samples.
class Faulty : public Numbers {
 public:
  explicit Faulty(std::int64_t size, std::set<std::int64_t> bad) : Numbers(size), bad_(std::move(bad)) {}
  data::Example get(std::int64_t index) const override {
    check_sample(index);
    return Numbers::get(index);
  }
  void repair() { bad_.clear(); }

 private:
  void check_sample(std::int64_t index) const {
    if (bad_.contains(index)) throw ValueError("the sample is broken");
  }
  std::set<std::int64_t> bad_;
};

// The targets of an epoch, in order.
inline Indices epoch(data::DataLoader& loader) {
  Indices seen;
  for (const auto& [x, y] : loader) {
    const Indices batch = y.to_vector<std::int64_t>();
    seen.insert(seen.end(), batch.begin(), batch.end());
  }
  return seen;
}

inline Indices count_to(std::int64_t end) {
  Indices all(static_cast<std::size_t>(end));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

constexpr int kWorkers[] = {0, 1, 2, 5};

}  // namespace tandem::test
