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
  /// Takes that many steps. No value is read in between.
  virtual void run(std::int64_t steps) = 0;
  /// The loss of the last step, computed before the step changed the weights.
  virtual double loss() const = 0;
};

/// The engine, used as a user would write a step.
std::unique_ptr<Step> make_eager(const Problem& problem);
/// The eager step, recorded once and replayed.
std::unique_ptr<Step> make_captured(const Problem& problem);
/// The captured step whose weights are updated inside the products that give their gradients.
std::unique_ptr<Step> make_fused(const Problem& problem);

/// Plain loops and this build's matrix product on existing buffers, without autograd. A step that writes gradients out
/// cannot be faster.
std::unique_ptr<Step> make_floor(const Problem& problem);
/// The floor of a net: its multiply-adds alone, on registers, without numbers. The model computes nothing else as fast.
std::unique_ptr<Step> make_net_floor(const Problem& problem);

/// A way of the engine that --mode can name.
struct Mode {
  const char* name;
  std::unique_ptr<Step> (*make)(const Problem& problem);
};
inline const std::vector<Mode>& modes() {
  static const std::vector<Mode> all{{"eager", make_eager}, {"captured", make_captured}, {"fused", make_fused}};
  return all;
}

}  // namespace bench
