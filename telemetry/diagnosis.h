#pragma once

#include <string>
#include <vector>

#include <tandem/telemetry/rank_steps.h>
#include <tandem/telemetry/step_profile.h>

// Internal: why steps are not faster.

namespace tandem::inline v0::telemetry {

/// A brake takes time from the steps of a run that a change would give back.
enum class Brake {
  none,              // nearly all of it computes
  loader,            // waiting for a DataLoader
  slow_rank,         // ranks that the others wait for
  ranks_in_turn,     // now one rank, now another
  link,              // an exchange that takes long
  small_buckets,     // gradients in too many pieces
  large_buckets,     // gradients in too few pieces to leave early
  unshard,           // waiting for parameters that other ranks keep
  optimizer_by_all,  // each rank makes the whole update
  optimizer,         // the update, alone
  data_parallel,     // copying to and from the first device
  reads,             // values that the host reads in a step
  allocations,       // memory that the system gives in each step
  loop,              // what the loop does itself
  unequal_stages,    // of a pipeline
  bubble,            // of a pipeline
  tiny_batch,        // fixed costs, for few rows
  idle_cores,        // or devices, on which nothing computes
  bound_cores        // ranks that may use only some of the cores
};

/// "loader", ...
const char* name_of(Brake brake);

/// A brake that was found, and what taking it away would give.
struct Cause {
  Brake brake = Brake::none;
  double gain = 1;        ///< the rate of training without it, divided by that with it
  std::string text = {};  ///< what it is, and the change
};

/// The causes in these steps, the largest gain first; at least one.
std::vector<Cause> causes_of(const Ranks& ranks);

/// A report of a few lines: the time per phase of these ranks' steps, and the largest part that could be saved with the
/// change that would save it. parallel::diagnose() collects the ranks.
std::string diagnosis(const Ranks& ranks);

/// The numbers of these steps for predictions, without the sizes of parameters.
StepProfile profile_of(const Ranks& ranks);

/// One line on the first cause, or an empty text unless it is worth one: a gain of a fifth.
std::string verdict(const Ranks& ranks);

}  // namespace tandem::inline v0::telemetry
