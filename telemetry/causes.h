#pragma once

#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <tandem/telemetry/diagnosis.h>

// Internal: how causes_of() collects causes.

namespace tandem::inline v0::telemetry {

inline std::string percent(double us, const Ranks& ranks) {
  return fmt::format("{:.0f} %", 100 * us / ranks.mean().step_us);
}

/// The causes found so far in the steps of these ranks.
class Causes {
 public:
  explicit Causes(const Ranks& ranks) : ranks_(ranks) {}

  const Ranks& ranks() const { return ranks_; }
  const RankSteps& mean() const { return ranks_.mean(); }
  double step() const { return mean().step_us; }
  bool is_alone() const { return ranks_.count() == 1; }

  /// A change that saves `us` of a step.
  void add(Brake brake, double us, std::string text) { all_.push_back({brake, gain_of(us), std::move(text)}); }
  void add_gain(Brake brake, double gain, std::string text) { all_.push_back({brake, gain, std::move(text)}); }
  std::vector<Cause> take() { return std::move(all_); }

 private:
  double gain_of(double us) const { return step() / std::max(step() - std::max(us, 0.0), 0.01 * step()); }

  const Ranks& ranks_;
  std::vector<Cause> all_;
};

/// Adds the costs of waiting: for slower ranks, and for the exchange. `uneven` is the largest cost of a phase that only
/// some ranks have.
void add_costs_of_waiting(Causes& causes, double uneven);

}  // namespace tandem::inline v0::telemetry
