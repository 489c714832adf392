#include <tandem/telemetry/diagnosis.h>

#include <cstddef>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

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

// How much memory a rank's model takes.
std::string line_on_memory(const RankSteps& mean) {
  constexpr double kMib = 1 << 20;
  if (mean.of(Fact::parameter_bytes) == 0) {
    return "";
  }
  return fmt::format(
      "memory of a rank: parameters {:.1f} MiB, gradients {:.1f} MiB, optimiser's state {:.1f} MiB\n",
      mean.of(Fact::parameter_bytes) / kMib,
      (mean.of(Fact::gradient_bytes) > 0 ? mean.of(Fact::gradient_bytes) : mean.of(Fact::parameter_bytes)) / kMib,
      mean.of(Fact::state_bytes) / kMib);
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
  std::string text =
      fmt::format("{}{}, {:.0f} us each:\n", ranks.counts(),
                  ranks.count() > 1 ? fmt::format(" on each of {} ranks", ranks.count()) : "", mean.step_us);
  const auto line = [&](const char* name, double us) {
    if (us > 0) {
      text += fmt::format("  {:10} {:9.0f} us {:4.0f} %\n", name, us, 100 * us / mean.step_us);
    }
  };
  for (std::size_t i = 0; i < kPhases; ++i) {
    line(to_string(static_cast<Phase>(i)), mean.us[i]);
  }
  line("the rest", mean.rest());
  if (const double exchange = ranks.least([](const RankSteps& rank) { return rank.of(Effort::exchange).seconds; });
      exchange > 0 && ranks.count() > 1) {
    text += fmt::format("exchange takes {:.0f} us of a step, of which {:.0f} us go on under other work\n", exchange,
                        std::max(0.0, exchange - ranks.exchange()));
  }
  text += ranks.count() > 1 ? line_on_efficiency(ranks) : "";
  text += line_on_memory(mean);
  const std::vector<Cause> causes = causes_of(ranks);
  constexpr double kWorthwhile = 1.05;
  if (causes.front().gain < kWorthwhile) {
    text += "Nearly all of it computes: a step gets faster by faster devices, more of them, or more threads.\n";
  } else {
    text += fmt::format("The largest part that one could save: {}. Predicted: {:.2f} times the rate.\n",
                        causes.front().text, causes.front().gain);
  }
  return text + note_on_cores(ranks);
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
