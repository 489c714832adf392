#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "step/problem.h"

namespace bench {

/// One way to train a Problem: forward, loss, backward, optimiser.
class Step {
 public:
  virtual ~Step() = default;
  /// Takes that many steps; nobody looks at a value in between.
  virtual void run(std::int64_t steps) = 0;
  /// The loss that the last step computed, before it changed the weights.
  virtual double loss() const = 0;
};

/// The engine, as a user writes a step.
std::unique_ptr<Step> make_eager(const Problem& problem);
/// The same, recorded once and replayed.
std::unique_ptr<Step> make_captured(const Problem& problem);

/// Plain loops and this build's matrix product, without autograd, on buffers that exist: what a step cannot be faster
/// than, as long as gradients are written out.
std::unique_ptr<Step> make_floor(const Problem& problem);

/// A way of the engine that --mode can name.
struct Mode {
  const char* name;
  std::unique_ptr<Step> (*make)(const Problem& problem);
};
inline const std::vector<Mode>& modes() {
  static const std::vector<Mode> all{{"eager", make_eager}, {"captured", make_captured}};
  return all;
}

}  // namespace bench
