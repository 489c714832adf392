#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <tandem/core/export.h>
#include <tandem/telemetry/step_profile.h>

namespace tandem::inline v0::telemetry {

/// A network between ranks, each with a link of its own: a message of b bytes takes latency_us + b / bytes_per_us.
struct Network {
  std::string name = {};    ///< "1gbit"
  double latency_us = 0;    ///< of a message, whatever its size
  double bytes_per_us = 0;  ///< of a link, in each direction

  /// "nvlink" (900 GB/s in both directions together, NVLink of the fourth generation), or a rate such as "1gbit",
  /// "400gbit", "100mbit", of which protocols leave 94 %. Throws ConfigError for other texts.
  TANDEM_API static Network named(std::string_view name);
};

/// How ranks train together.
enum class Way { ddp, shard_optimizer, shard_gradients, shard_parameters, pipeline };

/// A step of several ranks, as it is predicted.
struct Prediction {
  Way way = Way::ddp;       ///< how they train together
  int ranks = 1;            ///< all together
  int stages = 1;           ///< of each pipeline; ranks / stages pipelines train together
  double step_us = 0;       ///< duration of a step
  double exposed_us = 0;    ///< waiting for the exchange, or idle in a pipeline
  double speedup = 1;       ///< rows per second, divided by those of one rank
  double memory_bytes = 0;  ///< of a rank
  /// "ddp", "shard = optimizer", "2 pipelines of 4 stages"
  TANDEM_API std::string name() const;
};

/// Options of predict_step().
struct PredictionOptions {
  Network network = {};         ///< between the ranks
  int microbatches = 8;         ///< of pipelines
  double activation_bytes = 0;  ///< that a stage hands over for a batch; 0: pipelines are not predicted
};

/// The step of `ranks` ranks, each of which computes what a rank of the profile does, in all ways that are known. The
/// computation is taken as it was measured, divided among the parameters by their sizes; the exchange as collectives
/// that travel one after another, each as soon as its gradients are there: 2 (n - 1) / n of the bytes of a bucket for
/// an all-reduce, half of it for a reduce-scatter or an all-gather (Hockney's alpha-beta model). Buckets have the best
/// of 1, 5 and 25 MiB. A faster network is never slower.
TANDEM_API std::vector<Prediction> predict_step(const StepProfile& profile, int ranks,
                                                const PredictionOptions& options);

}  // namespace tandem::inline v0::telemetry
