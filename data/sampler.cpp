#include <tandem/data/sampler.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <span>
#include <utility>

#include <tandem/core/check.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::data {

namespace {

void check_num_samples(const char* sampler, std::int64_t num_samples) {
  check<ConfigError>(num_samples >= 1, "{}: num_samples should be a positive integer value, but got num_samples={}",
                     sampler, num_samples);
}

// Uniform numbers on [0, 1), on the host regardless of the current device.
std::vector<double> uniform(std::size_t count) {
  return rand({static_cast<std::int64_t>(count)}, {.dtype = DType::f64, .device = "cpu"}).to_vector<double>();
}

// Locates uniform numbers among the cumulative sums of the weights. A weight of 0 does not increase the sum, so its
// index is never the first one above the number.
std::vector<std::int64_t> draw_with_replacement(std::span<const double> weights, std::int64_t num_samples) {
  std::vector<double> sums(weights.size());
  std::partial_sum(weights.begin(), weights.end(), sums.begin());
  const auto last = std::lower_bound(sums.begin(), sums.end(), sums.back());  // bound for u rounded up to 1
  std::vector<std::int64_t> indices;
  for (const double u : uniform(static_cast<std::size_t>(num_samples))) {
    indices.push_back(std::min(std::upper_bound(sums.begin(), last, u * sums.back()), last) - sums.begin());
  }
  return indices;
}

// Draws by the first of independent exponential clocks with the weights as rates (Efraimidis and Spirakis, 2006). The
// winner has a probability proportional to its weight, and so has the next one among the rest.
std::vector<std::int64_t> draw_without_replacement(std::span<const double> weights, std::int64_t num_samples) {
  std::vector<std::pair<double, std::int64_t>> clocks;
  const std::vector<double> uniforms = uniform(weights.size());
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] > 0) {
      clocks.emplace_back(-std::log1p(-uniforms[i]) / weights[i], static_cast<std::int64_t>(i));
    }
  }
  std::partial_sort(clocks.begin(), clocks.begin() + num_samples, clocks.end());
  std::vector<std::int64_t> indices;
  for (std::int64_t i = 0; i < num_samples; ++i) {
    indices.push_back(clocks[static_cast<std::size_t>(i)].second);
  }
  return indices;
}

}  // namespace

std::vector<std::int64_t> Sampler::indices_after(std::int64_t epoch, std::int64_t used) const {
  std::vector<std::int64_t> rest = indices_of(epoch);
  rest.erase(rest.begin(), rest.begin() + std::min(used, static_cast<std::int64_t>(rest.size())));
  return rest;
}

std::vector<std::int64_t> SequentialSampler::indices() const {
  std::vector<std::int64_t> all(static_cast<std::size_t>(size_));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

RandomSampler::RandomSampler(const Dataset& data_source, const RandomSamplerOptions& options)
    : data_size_(data_source.size()),
      num_samples_(options.num_samples.value_or(data_size_)),
      replacement_(options.replacement) {
  check<ConfigError>(data_size_ > 0, "RandomSampler: the data set is empty");
  check_num_samples("RandomSampler", num_samples_);
}

std::vector<std::int64_t> RandomSampler::indices() const {
  if (replacement_) {
    return randint(0, data_size_, {num_samples_}).to_vector<std::int64_t>();
  }
  std::vector<std::int64_t> order;
  while (static_cast<std::int64_t>(order.size()) < num_samples_) {
    const std::vector<std::int64_t> next = randperm(data_size_).to_vector<std::int64_t>();
    const auto count = std::min(data_size_, num_samples_ - static_cast<std::int64_t>(order.size()));
    order.insert(order.end(), next.begin(), next.begin() + count);
  }
  return order;
}

WeightedRandomSampler::WeightedRandomSampler(std::vector<double> weights, std::int64_t num_samples, bool replacement)
    : weights_(std::move(weights)), num_samples_(num_samples), replacement_(replacement) {
  check_num_samples("WeightedRandomSampler", num_samples_);
  std::int64_t positive = 0;
  double sum = 0;
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    check<ConfigError>(weights_[i] >= 0 && std::isfinite(weights_[i]),
                       "WeightedRandomSampler: weight {} of sample {}; expected a finite number from 0 on", weights_[i],
                       i);
    positive += weights_[i] > 0 ? 1 : 0;
    sum += weights_[i];
  }
  check<ConfigError>(positive > 0, "WeightedRandomSampler: none of the {} weights is above 0", weights_.size());
  check<ConfigError>(std::isfinite(sum),
                     "WeightedRandomSampler: the sum of the weights is not finite; scale them down");
  check<ConfigError>(replacement_ || num_samples_ <= positive,
                     "WeightedRandomSampler: {} samples without replacement, but only {} of the {} weights are above 0",
                     num_samples_, positive, weights_.size());
}

std::vector<std::int64_t> WeightedRandomSampler::indices() const {
  return replacement_ ? draw_with_replacement(weights_, num_samples_)
                      : draw_without_replacement(weights_, num_samples_);
}

}  // namespace tandem::inline v0::data
