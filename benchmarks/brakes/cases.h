#pragma once

#include <functional>
#include <string>
#include <vector>

#include <tandem/telemetry/diagnosis.h>

namespace bench::brakes {

/// A training was seen to do this.
struct Seen {
  tandem::telemetry::Cause first;  // of its causes
  std::string verdict;             // the line on it; empty: none is worth one
  std::string diagnosis;           // all of it
  double rate = 0;                 // rows per second of all ranks
};

/// A training with a brake built in, and the same one after taking the advice.
struct Case {
  std::string name;
  tandem::telemetry::Brake brake;
  std::function<Seen(bool braked)> train;
  bool is_bound = false;  // runs as two processes, which are bound to one core while braked
};

/// The 16 brakes.
std::vector<Case> braked_cases();

/// A training in which nothing is to be found.
struct HealthyCase {
  std::string name;
  std::function<Seen()> train;
};

/// 20 of them.
std::vector<HealthyCase> healthy_cases();

}  // namespace bench::brakes
