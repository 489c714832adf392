#pragma once

#include <string>
#include <vector>

#include <tandem/core/export.h>
#include <tandem/telemetry/run_folder.h>

namespace tandem::inline v0::telemetry {

/// Numbers of a run's steps, from which those of other runs can be predicted: predict_step(), `tandem predict`. Times
/// are means over ranks, in microseconds of a step. Computation, update and state are those of a rank that does and
/// keeps all of it: where ranks shared them out, or were the stages of a pipeline, those of all of them together.
struct StepProfile {
  double ranks = 1;                          ///< that trained together
  double rows = 0;                           ///< of a rank's batch; 0: unknown
  double step_us = 0;                        ///< from one update to the next
  double input_us = 0;                       ///< waiting for batches
  double forward_us = 0;                     ///< without waiting
  double backward_us = 0;                    ///< without exchange
  double optimizer_us = 0;                   ///< the update
  double rest_us = 0;                        ///< what the loop does itself
  double exposed_us = 0;                     ///< waiting for the exchange, and for other ranks
  double exchange_us = 0;                    ///< collectives on their way, hidden or not
  double latency_us = 0;                     ///< of the smallest collective
  double buckets = 0;                        ///< in which gradients travelled
  double state_bytes = 0;                    ///< of the optimiser, on a rank
  double activation_bytes = 0;               ///< of all other tensors on a rank's device
  bool shares_memory = false;                ///< the ranks exchanged by memory that they share
  bool shards_updates = false;               ///< each rank updated its part of the parameters
  bool shards_parameters = false;            ///< and kept that part alone
  std::vector<double> parameter_bytes = {};  ///< of each parameter, in the order of its use

  /// All parameters together.
  TANDEM_API double bytes() const;
  /// For RunFolder::write_file("steps.json", to_json(...)), which `tandem predict` reads.
  TANDEM_API Fields to_fields() const;
  /// Throws IoError if a field is missing or is no such number.
  TANDEM_API static StepProfile from_fields(const Fields& fields);
};

}  // namespace tandem::inline v0::telemetry
