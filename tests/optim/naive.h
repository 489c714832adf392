#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace tandem::test {

using Values = std::vector<double>;

// Optimisers as their papers write them, in double precision, one parameter at a time.

struct NaiveSgd {
  double lr = 1e-3, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
  Values buffer{};
  std::int64_t steps = 0;

  void step(Values& p, const Values& gradient) {
    ++steps;
    buffer.resize(p.size());
    for (std::size_t i = 0; i < p.size(); ++i) {
      double g = gradient[i] + weight_decay * p[i];
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
  Values first{};
  Values second{};
  std::int64_t steps = 0;

  void step(Values& p, const Values& gradient) {
    ++steps;
    first.resize(p.size());
    second.resize(p.size());
    for (std::size_t i = 0; i < p.size(); ++i) {
      double g = gradient[i];
      if (decoupled) {
        p[i] -= lr * weight_decay * p[i];
      } else {
        g += weight_decay * p[i];
      }
      first[i] = beta1 * first[i] + (1 - beta1) * g;
      second[i] = beta2 * second[i] + (1 - beta2) * g * g;
      const double m = first[i] / (1 - std::pow(beta1, static_cast<double>(steps)));
      const double v = second[i] / (1 - std::pow(beta2, static_cast<double>(steps)));
      p[i] -= lr * m / (std::sqrt(v) + eps);
    }
  }
};

}  // namespace tandem::test
