#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace tandem::test {

using Values = std::vector<double>;

// Optimisers as written in their papers, in double precision, one parameter at a time.

struct NaiveSgd {
  double lr = 1e-3, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
  bool maximize = false;
  Values buffer{};
  std::int64_t steps = 0;

  void step(Values& p, const Values& gradient) {
    ++steps;
    buffer.resize(p.size());
    for (std::size_t i = 0; i < p.size(); ++i) {
      double g = (maximize ? -gradient[i] : gradient[i]) + weight_decay * p[i];
      if (momentum != 0) {
        buffer[i] = steps == 1 ? g : momentum * buffer[i] + (1 - dampening) * g;
        g = nesterov ? g + momentum * buffer[i] : buffer[i];
      }
      p[i] -= lr * g;
    }
  }
};

struct NaiveAdam {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool decoupled = false;
  bool amsgrad = false;
  bool maximize = false;
  Values first{};
  Values second{};
  Values largest{};
  std::int64_t steps = 0;

  void step(Values& p, const Values& gradient) {
    ++steps;
    first.resize(p.size());
    second.resize(p.size());
    largest.resize(p.size());
    for (std::size_t i = 0; i < p.size(); ++i) {
      double g = maximize ? -gradient[i] : gradient[i];
      if (decoupled) {
        p[i] -= lr * weight_decay * p[i];
      } else {
        g += weight_decay * p[i];
      }
      first[i] = beta1 * first[i] + (1 - beta1) * g;
      second[i] = beta2 * second[i] + (1 - beta2) * g * g;
      const double m = first[i] / (1 - std::pow(beta1, static_cast<double>(steps)));
      largest[i] = std::max(largest[i], second[i]);
      const double v = (amsgrad ? largest[i] : second[i]) / (1 - std::pow(beta2, static_cast<double>(steps)));
      p[i] -= lr * m / (std::sqrt(v) + eps);
    }
  }
};

struct NaiveRmsProp {
  double lr = 1e-2, alpha = 0.99, eps = 1e-8, weight_decay = 0, momentum = 0;
  bool centered = false;
  bool maximize = false;
  Values square{};
  Values mean{};
  Values buffer{};

  void step(Values& p, const Values& gradient) {
    square.resize(p.size());
    mean.resize(p.size());
    buffer.resize(p.size());
    for (std::size_t i = 0; i < p.size(); ++i) {
      const double g = (maximize ? -gradient[i] : gradient[i]) + weight_decay * p[i];
      square[i] = alpha * square[i] + (1 - alpha) * g * g;
      mean[i] = alpha * mean[i] + (1 - alpha) * g;
      const double variance = centered ? square[i] - mean[i] * mean[i] : square[i];
      buffer[i] = momentum * buffer[i] + g / (std::sqrt(variance) + eps);
      p[i] -= lr * buffer[i];
    }
  }
};

struct NaiveAdagrad {
  double lr = 1e-2, lr_decay = 0, weight_decay = 0, initial = 0, eps = 1e-10;
  bool maximize = false;
  Values sum{};
  std::int64_t steps = 0;

  void step(Values& p, const Values& gradient) {
    sum.resize(p.size(), initial);
    const double rate = lr / (1 + static_cast<double>(steps) * lr_decay);
    ++steps;
    for (std::size_t i = 0; i < p.size(); ++i) {
      const double g = (maximize ? -gradient[i] : gradient[i]) + weight_decay * p[i];
      sum[i] += g * g;
      p[i] -= rate * g / (std::sqrt(sum[i]) + eps);
    }
  }
};

}  // namespace tandem::test
