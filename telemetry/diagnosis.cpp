#include <tandem/telemetry/diagnosis.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tandem::inline v0::telemetry {

namespace {

// Time that could be saved, and advice on how.
struct Cost {
  double us;
  std::string text;
};

std::string percent(double us, const Ranks& ranks) { return fmt::format("{:.0f} %", 100 * us / ranks.mean().step_us); }

constexpr const char* kLessExchange =
    "larger batches per rank, no_sync() for all but every n-th batch, bf16_compress_hook(), a smaller bucket_cap_mb "
    "(more of it begins before the backward pass ends) or a faster link make it less";

constexpr const char* kLessBubble =
    "more micro-batches make the schedule's part of it smaller, another split that of unequal stages; "
    "pipeline.report() tells them apart";

// Costs that all ranks share alike. The largest cost that only some ranks have goes to `uneven`: the others wait for
// it.
std::vector<Cost> costs_of_phases(const Ranks& ranks, double& uneven) {
  const auto text = [&](double us, const char* what) {
    return fmt::format("{} of a step {}", percent(us, ranks), what);
  };
  std::vector<Cost> costs;
  const auto add = [&](const std::function<double(const RankSteps&)>& part, const char* what) {
    const double us = ranks.saved_without(part);
    if (us > 2 * ranks.least(part)) {
      uneven = std::max(uneven, us);
    } else {
      costs.push_back({us, text(us, what)});
    }
  };
  add([](const RankSteps& rank) { return rank.of(Phase::input); },
      "waits for the DataLoader: let more threads load ahead (num_workers, prefetch_factor), or prepare the data set "
      "beforehand");
  add([&](const RankSteps& rank) { return rank.copying(ranks.count() == 1); },
      "is DataParallel's copying to and from its first device, which grows with the number of devices: "
      "DistributedDataParallel (spawn()) has none of it but the reduction; larger batches make it a smaller part");
  add([](const RankSteps& rank) { return rank.of(Phase::optimizer); },
      "is the optimiser's update, which each rank does whole: larger batches have fewer updates");
  add([](const RankSteps& rank) { return rank.rest(); },
      "is none of these phases, but what the loop does itself: the loss, metrics, logging, evaluation, checkpoints, "
      "anything on the host. Do it less often, on the device, or in the module; SpanScope tells it apart");
  return costs;
}

// The part of a step that slow ranks spend more time in, with possible causes.
std::string what_differs(const Ranks& ranks, const std::vector<std::size_t>& slow) {
  struct Part {
    std::function<double(const RankSteps&)> us;
    std::string text;
  };
  std::vector<Part> parts{
      {[](const RankSteps& rank) { return rank.of(Phase::forward) + rank.of(Phase::backward); },
       ranks.mean().is_pipelined()
           ? "It is forward and backward that differ: its stage has more work (another split), or a slower or shared "
             "device"
           : "It is forward and backward that differ: more rows or longer ones, or a slower or shared device"},
      {[](const RankSteps& rank) { return rank.rest(); },
       "It is what the loop does beside the phases that differs: work that is done on one rank alone (logging, "
       "evaluation, checkpoints)"},
      {[](const RankSteps& rank) { return rank.of(Phase::input); },
       "It is their input that differs: slower storage, or a loader that shares its cores with others"}};
  for (const Phase phase : {Phase::scatter, Phase::replicate, Phase::gather, Phase::optimizer, Phase::replay}) {
    parts.push_back(
        {[phase](const RankSteps& rank) { return rank.of(phase); },
         fmt::format("It is '{}' that differs: more to do, or a slower or shared device", to_string(phase))});
  }
  const auto difference = [&](const Part& part) {
    return ranks.mean_of(slow, part.us) - ranks.mean_of_others(slow, part.us);
  };
  return std::ranges::max_element(parts, std::ranges::less(), difference)->text;
}

std::string names_of(const std::vector<std::size_t>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

// Adds the costs of waiting: for slower ranks, and then for the exchange.
void add_costs_of_waiting(std::vector<Cost>& costs, const Ranks& ranks, double uneven) {
  const double exchange = ranks.exchange();
  if (ranks.mean().is_pipelined()) {
    costs.push_back({exchange, fmt::format("{} of a step waits for other stages of the pipeline and hands over: {}",
                                           percent(exchange, ranks), kLessBubble)});
  } else if (ranks.count() == 1) {
    if (ranks.mean().copying(false) == 0) {  // otherwise DataParallel does the reduction
      costs.push_back(
          {exchange, fmt::format("{} of a step waits for other ranks, beyond what the backward pass hides. If "
                                 "not for a slower one (diagnose(times, group) on all of them tells): {}",
                                 percent(exchange, ranks), kLessExchange)});
    }
  } else {
    costs.push_back(
        {exchange, fmt::format("{} of a step reduces gradients, or what the loop reduces itself, beyond what "
                               "the backward pass hides: {}",
                               percent(exchange, ranks), kLessExchange)});
  }
  if (ranks.count() == 1) {
    return;
  }
  const double waiting = ranks.waiting();
  const double slowest = ranks.most(&RankSteps::busy);
  const double excess = slowest - ranks.mean().busy();
  if (2 * excess < waiting && uneven < waiting) {
    costs.push_back(
        {waiting, fmt::format("in {} of a step ranks wait for each other, for one now and then for another: "
                              "batches of unequal length (give all ranks similar ones at a time), or cores "
                              "that more threads share than they are",
                              percent(waiting, ranks))});
    return;
  }
  const std::vector<std::size_t> slow = ranks.slow();
  costs.push_back({std::max(excess, uneven),
                   fmt::format("all wait for {}, busy for {:.0f} us of a step, where the quickest is for {:.0f}. {}",
                               names_of(slow), slowest, ranks.least(&RankSteps::busy), what_differs(ranks, slow))});
}

// A note when ranks have less than one core each; else empty.
std::string note_on_cores(const Ranks& ranks) {
  const auto [here, cores] = ranks.most_crowded();
  if (here <= cores) {
    return "";
  }
  return fmt::format("{} ranks share {} of a machine, and wait for {}, too.\n", here,
                     cores == 1 ? "the one core" : fmt::format("the {} cores", cores), cores == 1 ? "it" : "them");
}

}  // namespace

std::string diagnosis(const Ranks& ranks) {
  if (const std::vector<std::size_t> none = ranks.without_steps(); !none.empty()) {
    return fmt::format(
        "no step to diagnose{}: no optimiser has stepped on the thread that made the StepTimes, since it did. Make it "
        "on the thread that trains (with spawn(), in the function that it runs); an update that is no Optimizer's step "
        "is one in a SpanScope(Phase::optimizer)\n",
        ranks.count() > 1 ? fmt::format(" on {}", names_of(none)) : "");
  }
  const RankSteps mean = ranks.mean();
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
  double uneven = 0;
  std::vector<Cost> costs = costs_of_phases(ranks, uneven);
  add_costs_of_waiting(costs, ranks, uneven);
  const Cost first = *std::ranges::max_element(costs, std::ranges::less(), &Cost::us);
  constexpr double kWorthwhile = 0.05;
  if (first.us < kWorthwhile * mean.step_us) {
    text += "Nearly all of it computes: a step gets faster by faster devices, more of them, or more threads.\n";
  } else {
    text += fmt::format("The largest part that one could save: {}.\n", first.text);
  }
  return text + note_on_cores(ranks);
}

}  // namespace tandem::inline v0::telemetry
