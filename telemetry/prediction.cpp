#include <tandem/telemetry/prediction.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include <tandem/core/check.h>
#include <tandem/telemetry/text.h>

namespace tandem::inline v0::telemetry {

namespace {

// A bucket of parameters, with its share of the computation.
struct Bucket {
  double bytes = 0;
  double share = 0;
};

// A network, among n ranks.
class Wire {
 public:
  Wire(const Network& network, int ranks) : network_(network), ranks_(ranks) {}

  double gather(double bytes) const {
    const double n = ranks_;
    return ranks_ == 1 ? 0
                       : std::ceil(std::log2(n)) * network_.latency_us + (n - 1) / n * bytes / network_.bytes_per_us;
  }
  double all_reduce(double bytes) const { return 2 * gather(bytes); }

 private:
  Network network_;
  int ranks_;
};

// The buckets of DistributedDataParallel with that bucket_cap_mb, in the order in which the backward pass fills them.
std::vector<Bucket> buckets_of(const StepProfile& profile, double bucket_cap_mb) {
  std::vector<Bucket> buckets(1);
  for (std::size_t i = profile.parameter_bytes.size(); i-- > 0;) {
    if (buckets.back().bytes >= bucket_cap_mb * kMib) {
      buckets.emplace_back();
    }
    buckets.back().bytes += profile.parameter_bytes[i];
    buckets.back().share = buckets.back().bytes / profile.bytes();
  }
  return buckets;
}

// Work that begins at `ready`, on a wire that is free at `free`. Returns its end.
double send(double& free, double ready, double time) { return free = std::max(free, ready) + time; }

// The end of a backward pass that begins at 0 and exchanges each bucket when it is full.
double end_of_backward(const StepProfile& profile, const std::vector<Bucket>& buckets, const Wire& wire,
                       double parts_of_reduction) {
  double time = 0;
  double free = 0;
  for (const Bucket& bucket : buckets) {
    time += profile.backward_us * bucket.share;
    send(free, time, parts_of_reduction * wire.gather(bucket.bytes));
  }
  return std::max(time, free);
}

// The end of a forward pass that begins at 0, when the parts of the parameters begin to arrive.
double end_of_forward(const StepProfile& profile, const std::vector<Bucket>& buckets, const Wire& wire) {
  double time = 0;
  double free = 0;
  for (auto bucket = buckets.rbegin(); bucket != buckets.rend(); ++bucket) {
    time = std::max(time, send(free, 0, wire.gather(bucket->bytes))) + profile.forward_us * bucket->share;
  }
  return time;
}

// The end of a backward pass that gathers each bucket's parameters while it works on the one before, and scatters its
// gradients.
double end_of_gathering_backward(const StepProfile& profile, const std::vector<Bucket>& buckets, const Wire& wire) {
  double time = 0;
  double free = 0;
  double arrived = 0;  // the first bucket is still there from the forward pass
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    time = std::max(time, arrived);
    arrived = b + 1 < buckets.size() ? send(free, time, wire.gather(buckets[b + 1].bytes)) : 0;
    time += profile.backward_us * buckets[b].share;
    send(free, time, wire.gather(buckets[b].bytes));
  }
  return std::max(time, free);
}

double computing(const StepProfile& profile) { return profile.forward_us + profile.backward_us; }

double alone(const StepProfile& profile) {
  return profile.input_us + computing(profile) + profile.optimizer_us + profile.rest_us;
}

Prediction finished(const StepProfile& profile, Prediction prediction, double busy) {
  prediction.exposed_us = std::max(0.0, prediction.step_us - busy);
  prediction.speedup = prediction.ranks * alone(profile) / prediction.step_us;
  return prediction;
}

// The time of the passes of a step, with the best of these bucket sizes: DistributedDataParallel measures which is
// good.
double passes_of(const StepProfile& profile, Way way, int ranks, const Wire& wire) {
  double best = std::numeric_limits<double>::infinity();
  for (const double bucket_cap_mb : {1.0, 5.0, 25.0}) {
    const std::vector<Bucket> buckets = buckets_of(profile, bucket_cap_mb);
    const bool is_shared = way != Way::ddp && ranks > 1;
    const double forward = is_shared ? end_of_forward(profile, buckets, wire) : profile.forward_us;
    const double backward = way == Way::shard_parameters && ranks > 1
                                ? end_of_gathering_backward(profile, buckets, wire)
                                : end_of_backward(profile, buckets, wire, is_shared ? 1 : 2);
    best = std::min(best, forward + backward);
  }
  return best;
}

Prediction in_parallel(const StepProfile& profile, Way way, int ranks, const Network& network) {
  const Wire wire(network, ranks);
  const double part = 1.0 / ranks;
  const bool is_shared = way != Way::ddp && ranks > 1;
  const double update = profile.optimizer_us * (is_shared ? part : 1);
  Prediction prediction{.way = way, .ranks = ranks};
  prediction.step_us = profile.input_us + passes_of(profile, way, ranks, wire) + update + profile.rest_us;
  const double bytes = profile.bytes();
  prediction.memory_bytes = bytes * (way == Way::shard_parameters ? part : 1) +
                            bytes * (way == Way::shard_parameters || way == Way::shard_gradients ? part : 1) +
                            profile.state_bytes * (is_shared ? part : 1) + profile.activation_bytes;
  return finished(profile, prediction, profile.input_us + computing(profile) + update + profile.rest_us);
}

// Pipelines whose stages have equal work, each rank with the batch of the profile's rank.
Prediction in_pipelines(const StepProfile& profile, int ranks, int stages, const PredictionOptions& options) {
  const double batches = options.microbatches;
  // All ranks of a pipeline work on the batches of all of them.
  const double stage = computing(profile) / batches;
  const double hand_over =
      options.network.latency_us + stages * options.activation_bytes / batches / options.network.bytes_per_us;
  const double passes = (batches + stages - 1) * std::max(stage, 2 * hand_over) + 2 * (stages - 1) * hand_over;
  const double reduction = Wire(options.network, ranks / stages).all_reduce(profile.bytes() / stages);
  const double update = profile.optimizer_us / stages;
  Prediction prediction{.way = Way::pipeline, .ranks = ranks, .stages = stages};
  prediction.step_us = profile.input_us + passes + reduction + update + profile.rest_us;
  prediction.memory_bytes =
      (2 * profile.bytes() + profile.state_bytes) / stages + profile.activation_bytes * std::min(1.0, stages / batches);
  return finished(profile, prediction, profile.input_us + computing(profile) + update + profile.rest_us);
}

}  // namespace

Network Network::named(std::string_view name) {
  if (name == "nvlink") {
    return {.name = std::string(name), .latency_us = 10, .bytes_per_us = 450e3 * 0.8};
  }
  double rate = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), rate);
  const std::string_view unit(end, static_cast<std::size_t>(name.data() + name.size() - end));
  const double mbit = unit == "gbit" ? 1000 * rate : rate;
  constexpr double kLeast = 1e-3;
  constexpr double kMost = 1e9;
  check<ConfigError>(error == std::errc() && mbit >= kLeast && mbit <= kMost && (unit == "gbit" || unit == "mbit"),
                     "network: expected nvlink or a rate such as 1gbit, 100gbit, 100mbit, got '{}'", name);
  constexpr double kLeft = 0.94;   // by Ethernet's, IP's and TCP's heads; measured over 1 Gbit/s
  constexpr double kFast = 50000;  // networks of this rate write into the other host's memory
  return {.name = std::string(name), .latency_us = mbit >= kFast ? 10.0 : 60.0, .bytes_per_us = kLeft * mbit / 8};
}

std::string Prediction::name() const {
  switch (way) {
    case Way::ddp: return "ddp";
    case Way::shard_optimizer: return "shard = optimizer";
    case Way::shard_gradients: return "shard = gradients";
    case Way::shard_parameters: return "shard = parameters";
    case Way::pipeline: break;
  }
  const int pipelines = ranks / stages;
  return pipelines == 1 ? fmt::format("pipeline of {} stages", stages)
                        : fmt::format("{} pipelines of {} stages", pipelines, stages);
}

std::vector<Prediction> predict_step(const StepProfile& profile, int ranks, const PredictionOptions& options) {
  check<ConfigError>(ranks >= 1, "predict_step: expected at least 1 rank, got {}", ranks);
  check<ConfigError>(options.network.bytes_per_us > 0, "predict_step: expected a network (Network::named)");
  check<ConfigError>(options.microbatches >= 1, "predict_step: expected at least 1 micro-batch, got {}",
                     options.microbatches);
  std::vector<Prediction> all;
  for (const Way way : {Way::ddp, Way::shard_optimizer, Way::shard_gradients, Way::shard_parameters}) {
    all.push_back(in_parallel(profile, way, ranks, options.network));
  }
  for (int stages = 2; stages <= std::min(ranks, 16) && options.activation_bytes > 0; stages *= 2) {
    if (ranks % stages == 0) {
      all.push_back(in_pipelines(profile, ranks, stages, options));
    }
  }
  return all;
}

}  // namespace tandem::inline v0::telemetry
