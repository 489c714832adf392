#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/telemetry/causes.h>
#include <tandem/telemetry/text.h>

// Ranks wait for each other, for the stages of a pipeline, and for the exchange.

namespace tandem::inline v0::telemetry {

namespace {

std::string names_of(const std::vector<std::size_t>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

// A part of a step in which ranks may differ, with possible causes.
struct Part {
  std::function<double(const RankSteps&)> us;
  std::string text;
  bool can_be_shared;  // among all ranks; else it can only go
};

std::vector<Part> parts_of(const Ranks& ranks) {
  std::vector<Part> parts{
      {[](const RankSteps& rank) { return rank.of(Phase::forward) + rank.of(Phase::backward); },
       ranks.mean().is_pipelined()
           ? "It is forward and backward that differ: its stage has more work (another split), or a slower or shared "
             "device"
           : "It is forward and backward that differ: more rows or longer ones, or a slower or shared device",
       true},
      {[](const RankSteps& rank) { return rank.rest(); },
       "It is what the loop does beside the phases that differs: work that is done on one rank alone (logging, "
       "evaluation, checkpoints)",
       false},
      {[](const RankSteps& rank) { return rank.of(Phase::input); },
       "It is their input that differs: slower storage, or a loader that shares its cores with others", false}};
  for (const Phase phase : {Phase::scatter, Phase::replicate, Phase::gather, Phase::optimizer, Phase::replay}) {
    parts.push_back({[phase](const RankSteps& rank) { return rank.of(phase); },
                     fmt::format("It is '{}' that differs: more to do, or a slower or shared device", to_string(phase)),
                     true});
  }
  return parts;
}

// The part of a step that slow ranks spend more time in.
Part what_differs(const Ranks& ranks, const std::vector<std::size_t>& slow) {
  const std::vector<Part> parts = parts_of(ranks);
  return *std::ranges::max_element(parts, std::ranges::less(), [&](const Part& part) {
    return ranks.mean_of(slow, part.us) - ranks.mean_of_others(slow, part.us);
  });
}

// The time that goes with the waiting of ranks for each other in turn: their work beside the phases, or waiting for
// input, if that is what they wait for.
double goes_with_waiting(const Ranks& ranks, double waiting) {
  const double own = waiting / static_cast<double>(ranks.count() - 1);  // each rank's, for which all others wait
  const std::vector<Part> parts = parts_of(ranks);
  const bool can_go = std::ranges::any_of(
      parts, [&](const Part& part) { return !part.can_be_shared && part.us(ranks.mean()) > own / 2; });
  return can_go ? own : 0;
}

// A pipeline whose stages wait `us` of a step.
void add_bubble(Causes& causes, double us) {
  const RankSteps& mean = causes.mean();
  const double stages = mean.of(Fact::stages);
  const double batches = mean.of(Fact::microbatches);
  const std::string waits =
      fmt::format("{} of a step waits for other stages of the pipeline and hands over", percent(us, causes.ranks()));
  if (stages < 2 || batches < 1) {
    causes.add(Brake::bubble, us,
               waits +
                   ": more micro-batches make the schedule's part of it smaller, another split that of unequal "
                   "stages; pipeline.report() tells them apart");
    return;
  }
  const double imbalance = mean.of(Fact::imbalance);
  if (imbalance > 0) {
    causes.add(Brake::unequal_stages, std::min(us, imbalance * causes.step()),
               waits + fmt::format(", {:.0f} % because its stages have unequal work: another split (split_by_time()) "
                                   "gives them equal parts",
                                   100 * imbalance));
  }
  const auto bubble = [&](double count) { return (stages - 1) / (count + stages - 1); };
  causes.add(Brake::bubble, std::min(us, causes.step() * (1 - (1 - bubble(batches)) / (1 - bubble(4 * batches)))),
             waits + fmt::format(": {:.0f} % is the schedule's, (S - 1) / (M + S - 1) with {:.0f} stages and {:.0f} "
                                 "micro-batches; four times as many make it {:.0f} %. pipeline.report() has all of it",
                                 100 * bubble(batches), stages, batches, 100 * bubble(4 * batches)));
}

// The exchange of gradients, as it was seen.
struct Exchange {
  double exposed;  // what nothing hides, in microseconds of a step
  double wire;     // how long collectives are on their way
  double latency;  // of the smallest one
  double buckets;
  double bytes;  // of all gradients
  std::string what;
};

Exchange exchange_of(const Ranks& ranks, double exposed) {
  const RankSteps& mean = ranks.mean();
  Exchange exchange{
      .exposed = exposed,
      .wire = ranks.wire(),
      .latency = ranks.latency(),
      .buckets = mean.of(Fact::buckets),
      .bytes = mean.of(Fact::gradient_bytes),
      .what = fmt::format(
          "{} of a step reduces gradients, or what the loop reduces itself, beyond what the backward pass hides",
          percent(exposed, ranks))};
  return exchange;
}

// Parameters that other ranks keep. Returns the time that is waited for them.
double add_unshard(Causes& causes, const Exchange& exchange) {
  const Ranks& ranks = causes.ranks();
  const double waits =
      std::min(exchange.exposed, ranks.least([](const RankSteps& rank) { return rank.of(Effort::unshard).seconds; }));
  if (waits < exchange.exposed / 4) {
    return 0;
  }
  // One gather of all parameters, under the forward pass, takes the place of those in the passes.
  const EffortSum& gathers = causes.mean().of(Effort::all_gather);
  const double part = exchange.bytes / static_cast<double>(ranks.count());
  const double once = gathers.bytes > 0 ? gathers.seconds * std::min(1.0, part / gathers.bytes) : 0;
  causes.add(Brake::unshard, std::min(waits, gathers.seconds - once),
             fmt::format("{} of a step waits for parameters that other ranks keep (shard = parameters gathers them in "
                         "the forward and in the backward pass): where they fit, shard = gradients gathers them once, "
                         "under the next forward pass",
                         percent(waits, ranks)));
  return waits;
}

// Gradients in too many or too few pieces for the network. Returns whether they are.
bool add_buckets(Causes& causes, const Exchange& exchange) {
  const auto& [exposed, wire, latency, buckets, bytes, what] = exchange;
  if (latency == 0 || wire == 0 || buckets == 0) {
    return false;
  }
  const double needed = std::max(1.0, std::ceil(bytes / kMib));
  if (buckets > needed && latency * buckets > wire / 2) {
    // The time on the way beyond latencies is the bytes' own time, and that of the pieces.
    const double left = needed * latency + (wire - latency * buckets) / 2;
    causes.add(Brake::small_buckets, std::max(0.0, exposed - left),
               fmt::format("{}: {:.1f} MiB travel in {:.0f} pieces, each of which takes {:.0f} us whatever its size. A "
                           "larger bucket_cap_mb has fewer",
                           what, bytes / kMib, buckets, latency));
    return true;
  }
  const double pieces = std::min(8.0, bytes / kMib * 4);
  if (buckets > 2 || pieces < 4) {
    return false;
  }
  // The first pieces can leave as early as the backward pass has made them; nothing hides the last one.
  const double could_hide = std::min(wire, causes.mean().of(Phase::backward)) * (1 - 1 / pieces);
  const double saved = std::min(exposed, could_hide - std::max(0.0, wire - exposed) - latency * pieces);
  if (saved < exposed / 4) {
    return false;
  }
  causes.add(Brake::large_buckets, saved,
             fmt::format("{}: {:.1f} MiB of gradients leave in {:.0f} piece{}, when the backward pass is over. A "
                         "smaller bucket_cap_mb ({:.2g}) lets most of them leave before",
                         what, bytes / kMib, buckets, buckets == 1 ? "" : "s", bytes / kMib / pieces));
  return true;
}

void add_exchange(Causes& causes, double exposed) {
  const RankSteps& mean = causes.mean();
  const Exchange exchange = exchange_of(causes.ranks(), exposed);
  exposed -= add_unshard(causes, exchange);
  const bool is_network = mean.of(Fact::shares_memory) == 0;
  if (is_network && add_buckets(causes, exchange)) {
    return;
  }
  const std::string what = exchange.what + (is_network && exchange.wire > 0 && exchange.bytes > 0
                                                ? fmt::format(" ({:.1f} MiB at {:.0f} Mbit/s)", exchange.bytes / kMib,
                                                              8 * exchange.bytes / exchange.wire)
                                                : "");
  constexpr const char* kMore =
      "larger batches per rank, a smaller bucket_cap_mb (more of it begins before the backward pass ends) or a faster "
      "link make it less";
  if (mean.of(Fact::shards_updates) == 1) {  // which takes no hook
    causes.add(Brake::link, exposed / 2,
               fmt::format("{}: batches twice as large exchange half as often; {}", what, kMore));
  } else {
    causes.add(
        Brake::link, std::min(exposed, std::max(exchange.wire, exposed) / 2),
        fmt::format("{}: bf16_compress_hook() halves it, no_sync() for all but every n-th batch has a n-th of it; "
                    "{}",
                    what, kMore));
  }
}

}  // namespace

void add_costs_of_waiting(Causes& causes, double uneven) {
  const Ranks& ranks = causes.ranks();
  const double exchange = ranks.exchange();
  if (ranks.mean().is_pipelined()) {
    add_bubble(causes, exchange);
  } else if (!causes.is_alone()) {
    add_exchange(causes, exchange);
  } else if (ranks.mean().copying(false) == 0) {  // otherwise DataParallel does the reduction
    causes.add(
        Brake::link, exchange / 2,
        fmt::format("{} of a step waits for other ranks, beyond what the backward pass hides. If not for a slower "
                    "one (diagnose(times, group) on all of them tells): larger batches per rank, no_sync() for all "
                    "but every n-th batch, bf16_compress_hook() or a faster link make it less",
                    percent(exchange, ranks)));
  }
  if (causes.is_alone()) {
    return;
  }
  const double waiting = ranks.waiting();
  const double slowest = ranks.most(&RankSteps::busy);
  const double excess = slowest - ranks.mean().busy();
  if (2 * excess < waiting && uneven < waiting) {
    causes.add(Brake::ranks_in_turn, waiting + goes_with_waiting(ranks, waiting),
               fmt::format("in {} of a step ranks wait for each other, for one now and then for another: batches of "
                           "unequal length (give all ranks similar ones at a time), or cores that more threads share "
                           "than they are",
                           percent(waiting, ranks)));
    return;
  }
  const std::vector<std::size_t> slow = ranks.slow();
  const Part part = what_differs(ranks, slow);
  const bool can_go = !part.can_be_shared && slow.size() < ranks.count();
  causes.add(ranks.mean().is_pipelined() ? Brake::unequal_stages : Brake::slow_rank,
             can_go ? slowest - ranks.mean_of_others(slow, &RankSteps::busy) : std::max(excess, uneven),
             fmt::format("all wait for {}, busy for {:.0f} us of a step, where the quickest is for {:.0f}. {}",
                         names_of(slow), slowest, ranks.least(&RankSteps::busy), part.text));
}

}  // namespace tandem::inline v0::telemetry
