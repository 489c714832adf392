#include <tandem/telemetry/diagnosis.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/telemetry/text.h>

namespace tandem::inline v0::telemetry {

namespace {

// A note when ranks have less than one core each; else empty.
std::string note_on_cores(const Ranks& ranks) {
  const auto [here, cores] = ranks.most_crowded();
  if (here <= cores) {
    return "";
  }
  return fmt::format("{} ranks share {} of a machine, and wait for {}, too.\n", here,
                     cores == 1 ? "the one core" : fmt::format("the {} cores", cores), cores == 1 ? "it" : "them");
}

// The rate of all ranks beside that of one that waits for no other and copies nothing.
std::string line_on_efficiency(const Ranks& ranks) {
  const RankSteps& mean = ranks.mean();
  const double alone = mean.step_us - mean.wait() - mean.copying(false);
  const double rows = mean.of(Fact::rows);
  return fmt::format(
      "{}{} ranks give about {:.2f} times the work of one, {:.0f} % of {}\n",
      rows > 0 ? fmt::format("{:.0f} rows a second; ", 1e6 * rows * static_cast<double>(ranks.count()) / mean.step_us)
               : "",
      ranks.count(), static_cast<double>(ranks.count()) * alone / mean.step_us, 100 * alone / mean.step_us,
      ranks.count());
}

// A line for each rank: how its time is used.
std::string lines_on_ranks(const Ranks& ranks) {
  constexpr std::size_t kMost = 8;  // more would hide the rest
  if (ranks.count() < 2 || ranks.count() > kMost) {
    return "";
  }
  std::string text = "            computes     loads   updates    copies     waits  the rest\n";
  for (std::size_t i = 0; i < ranks.count(); ++i) {
    const RankSteps& rank = ranks.all()[i];
    text += fmt::format("  rank {:<3}", i);
    for (const double us : {rank.compute(), rank.of(Phase::input), rank.of(Phase::optimizer), rank.copying(false),
                            rank.wait(), rank.rest()}) {
      text += fmt::format("  {:6.0f} %", 100 * us / rank.step_us);
    }
    text += '\n';
  }
  return text;
}

// How much memory a rank's model takes.
std::string line_on_memory(const RankSteps& mean) {
  if (mean.of(Fact::parameter_bytes) == 0) {
    return "";
  }
  const auto mib = [&](Fact fact) { return mean.of(fact) / kMib; };
  return fmt::format(
      "memory of a rank: parameters {:.1f} MiB, gradients {:.1f} MiB, optimiser's state {:.1f} MiB; all tensors on its "
      "device, activations included, at most {:.1f} MiB{}\n",
      mib(Fact::parameter_bytes), mib(mean.of(Fact::gradient_bytes) > 0 ? Fact::gradient_bytes : Fact::parameter_bytes),
      mib(Fact::state_bytes), mib(Fact::peak_bytes),
      // A replay allocates nothing.
      mean.peak_place.empty() || mean.of(Phase::replay) > 0
          ? ""
          : fmt::format("; in these steps {:.1f} MiB, in '{}'", mean.peak_bytes / kMib, mean.peak_place));
}

// A warning about times of hosts, which do not wait for their GPUs.
std::string line_on_clocks(const Ranks& ranks) {
  const auto count = std::ranges::count_if(ranks.all(), &RankSteps::runs_ahead);
  return count == 0 ? ""
                    : fmt::format(
                          "Times {}are those of the host, which runs ahead of the GPU: what it waits for, such "
                          "as a loss that it reads, seems to take all of it.\n",
                          ranks.count() > 1 ? fmt::format("of {} of {} ranks ", count, ranks.count()) : "");
}

}  // namespace

std::string diagnosis(const Ranks& ranks) {
  if (const std::vector<std::size_t> none = ranks.without_steps(); !none.empty()) {
    return fmt::format(
        "no step to diagnose{}: no optimiser has stepped on the thread that made the StepTimes, since it did. Make it "
        "on the thread that trains (with spawn(), in the function that it runs); an update that is no Optimizer's step "
        "is one in a SpanScope(Phase::optimizer)\n",
        ranks.count() > 1 ? fmt::format(" on rank{} {}", none.size() == 1 ? "" : "s", fmt::join(none, ", ")) : "");
  }
  const RankSteps& mean = ranks.mean();
  std::string text = fmt::format("{}{}, {:.0f} us each{}:\n", ranks.counts(),
                                 ranks.count() > 1 ? fmt::format(" on each of {} ranks", ranks.count()) : "",
                                 mean.step_us, ranks.is_gpu_time() ? " in the time of the GPU" : "");
  const auto line = [&](const char* name, double us) {
    if (us > 0) {
      text += fmt::format("  {:10} {:9.0f} us {:4.0f} %\n", name, us, 100 * us / mean.step_us);
    }
  };
  for (std::size_t i = 0; i < kPhases; ++i) {
    line(to_string(static_cast<Phase>(i)), mean.us[i]);
  }
  line("the rest", mean.rest());
  if (const double exchange = ranks.wire(); exchange > 0 && ranks.count() > 1) {
    text += fmt::format("exchange takes {:.0f} us of a step, of which {:.0f} us go on under other work\n", exchange,
                        std::max(0.0, exchange - ranks.exchange()));
  }
  text += lines_on_ranks(ranks);
  text += ranks.count() > 1 ? line_on_efficiency(ranks) : "";
  text += line_on_memory(mean);
  text += line_on_clocks(ranks);
  const std::vector<Cause> causes = causes_of(ranks);
  constexpr double kWorthwhile = 1.05;
  if (causes.front().gain < kWorthwhile) {
    text +=
        mean.of(Fact::gpu) == 0
            ? "Nearly all of it computes: a step gets faster by faster devices, more of them, or more threads.\n"
        : mean.of(Phase::replay) > 0
            ? "Nearly all of it computes: a step gets faster by a faster GPU, or more of them.\n"
            : "Nearly all of it computes, or launches what computes: graph::capture() launches a step at once; else "
              "it gets faster by a faster GPU, or more of them.\n";
  } else {
    text += fmt::format("The largest part that one could save: {}. Predicted: {:.2f} times the rate.\n",
                        causes.front().text, causes.front().gain);
  }
  return text + note_on_cores(ranks);
}

StepProfile profile_of(const Ranks& ranks) {
  const RankSteps& mean = ranks.mean();
  const auto count = static_cast<double>(ranks.count());
  // A replay does not say where its forward pass ends; that takes a third of both.
  const double replay = mean.of(Phase::replay);
  const double stages = std::max(1.0, mean.of(Fact::stages));
  const bool shards_updates = mean.of(Fact::shards_updates) == 1;
  const double whole = stages * (shards_updates ? count : 1);  // of what a rank updates and keeps for it
  const double kept = 2 * mean.of(Fact::parameter_bytes) + mean.of(Fact::state_bytes);
  const double of_process =
      ranks.all().front().is_process == 1 ? 1 : count;  // ranks whose tensors are counted together
  return {.ranks = count,
          .rows = mean.of(Fact::rows),
          .step_us = mean.step_us,
          .input_us = mean.of(Phase::input),
          .forward_us = stages * (mean.of(Phase::forward) + replay / 3),
          .backward_us = stages * (mean.of(Phase::backward) + replay * 2 / 3),
          .optimizer_us = whole * mean.of(Phase::optimizer),
          .rest_us = mean.rest(),
          .exposed_us = mean.wait(),
          .exchange_us = ranks.wire(),
          .latency_us = ranks.latency(),
          .buckets = mean.of(Fact::buckets),
          .state_bytes = whole * mean.of(Fact::state_bytes),
          .activation_bytes = std::max(0.0, mean.of(Fact::peak_bytes) / of_process - kept),
          .shares_memory = mean.of(Fact::shares_memory) == 1,
          .shards_updates = shards_updates,
          .shards_parameters = mean.of(Fact::shards_parameters) == 1};
}

std::string verdict(const Ranks& ranks) {
  constexpr double kWorthALine = 1.2;
  if (!ranks.without_steps().empty()) {
    return "";
  }
  const Cause first = causes_of(ranks).front();
  return first.gain < kWorthALine ? ""
                                  : fmt::format("training could be {:.1f} times as fast: {}", first.gain, first.text);
}

}  // namespace tandem::inline v0::telemetry
