#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <tandem/telemetry/causes.h>

// Which part of a step could be saved, by which change, and how much faster training would be.

namespace tandem::inline v0::telemetry {

namespace {

// The time of a step that would go if no device did more than the others: copying, and work on the first device alone
// that the devices could share.
double first_devices_part(const RankSteps& rank, bool is_alone) {
  const double copying = rank.copying(is_alone);
  const double devices = rank.of(Fact::devices);
  if (copying == 0 || devices < 2) {
    return copying;
  }
  const double beside = rank.of(Effort::backward_beside).seconds / (devices - 1);
  const double excess = std::max(0.0, rank.of(Effort::backward_here).seconds - beside);
  return copying + (1 - 1 / devices) * (excess + rank.rest());
}

// Costs that all ranks share alike. Returns the largest cost that only some ranks have: the others wait for it.
double add_costs_of_phases(Causes& causes) {
  const Ranks& ranks = causes.ranks();
  const RankSteps& mean = causes.mean();
  double uneven = 0;
  const auto add = [&](Brake brake, const std::function<double(const RankSteps&)>& part, double saved_share,
                       const char* what) {
    const double us = ranks.saved_without(part);
    if (us > 2 * ranks.least(part)) {
      uneven = std::max(uneven, us);
    } else {
      causes.add(brake, saved_share * us, fmt::format("{} of a step {}", percent(us, ranks), what));
    }
  };
  add(
      Brake::loader, [](const RankSteps& rank) { return rank.of(Phase::input); }, 1,
      "waits for the DataLoader: let more threads load ahead (num_workers, prefetch_factor), or prepare the data set "
      "beforehand");
  add(
      Brake::data_parallel, [&](const RankSteps& rank) { return first_devices_part(rank, ranks.count() == 1); }, 1,
      "is DataParallel's copying to and from its first device, and what that does alone: dp.loss() computes losses "
      "where "
      "the outputs are, DistributedDataParallel (spawn()) copies nothing and only reduces; larger batches make it a "
      "smaller part");
  const auto update = [](const RankSteps& rank) { return rank.of(Phase::optimizer); };
  if (!causes.is_alone() && mean.of(Fact::shards_updates) == 0 && mean.of(Fact::buckets) > 0) {
    // In shared memory, a reduce-scatter and an all-gather take some 1.4 times as long as an all-reduce (measured with
    // 22 MiB and 2 ranks); over a network as long.
    const double share = 1 - 1 / static_cast<double>(ranks.count());
    const double more = mean.of(Fact::shares_memory) == 1 ? 0.4 * ranks.exchange() : 0;
    const double whole = std::max(ranks.saved_without(update), 1.0);
    add(Brake::optimizer_by_all, update, std::max(0.0, share - more / whole),
        "is the optimiser's update, which each rank does whole: with shard = optimizer each does its part");
  } else {
    add(Brake::optimizer, update, 0.5, "is the optimiser's update: batches twice as large have half as many updates");
  }
  const auto reads = [](const RankSteps& rank) { return rank.of(Effort::read).seconds; };
  add(Brake::reads, reads, 1,
      "reads values on the host (item(), to_vector()): keep them in tensors, and read them once in many steps");
  const auto allocations = [](const RankSteps& rank) { return rank.of(Effort::allocation).seconds; };
  add(Brake::allocations, allocations, 1,
      "asks the system for memory: keep shapes equal from step to step, let tensors go within the step, and call "
      "empty_cpu_cache() outside of the loop");
  add(
      Brake::loop, [&](const RankSteps& rank) { return std::max(0.0, rank.rest() - reads(rank) - allocations(rank)); },
      1,
      "is none of these phases, but what the loop does itself: the loss, metrics, logging, evaluation, checkpoints, "
      "anything on the host. Do it less often, on the device, or in the module; SpanScope tells it apart");
  return uneven;
}

// Costs of a step that do not grow with its rows, if these are few.
void add_tiny_batch(Causes& causes, double fixed) {
  constexpr double kFew = 16;
  const RankSteps& mean = causes.mean();
  const double rows = mean.of(Fact::rows);
  const double compute = mean.compute();
  if (rows == 0 || rows > kFew || fixed < compute / 2) {
    return;
  }
  const double more = 4;
  causes.add_gain(Brake::tiny_batch, more * causes.step() / (causes.step() + (more - 1) * compute),
                  fmt::format("a batch of {:.0f} row{} on a rank: {} of a step is the same for any number of rows "
                              "(exchange, update, the loop). {:.0f} rows have a quarter of it each",
                              rows, rows == 1 ? "" : "s", percent(fixed, causes.ranks()), more * rows));
}

// Cores on which nothing computes.
void add_idle_cores(Causes& causes) {
  const Ranks::CoreUse use = causes.ranks().idle_cores();
  if (causes.mean().of(Fact::gpu) != 0 || use.used == 0 || 2 * use.used > use.all) {
    return;
  }
  const double share = static_cast<double>(use.used) / use.all;
  const double step = causes.step();
  // Ranks that share cores wait for them in all phases.
  const double shrinks = use.is_bound ? step : causes.mean().compute() + causes.mean().of(Phase::optimizer);
  causes.add_gain(
      use.is_bound ? Brake::bound_cores : Brake::idle_cores, step / (step - shrinks * (1 - share)),
      fmt::format("{} of the {} cores of a machine compute{}: {}", use.used, use.all, use.used == 1 ? "s" : "",
                  use.is_bound ? "its ranks are bound to these (taskset, mpirun --bind-to, a batch system); "
                                 "bind each rank to cores of its own"
                               : "start more ranks, or set TANDEM_NUM_THREADS"));
}

}  // namespace

const char* name_of(Brake brake) {
  constexpr const char* kNames[] = {
      "none",          "loader",  "slow_rank",        "ranks_in_turn", "link",          "small_buckets",
      "large_buckets", "unshard", "optimizer_by_all", "optimizer",     "data_parallel", "reads",
      "allocations",   "loop",    "unequal_stages",   "bubble",        "tiny_batch",    "idle_cores",
      "bound_cores"};
  return kNames[static_cast<std::size_t>(brake)];
}

std::vector<Cause> causes_of(const Ranks& ranks) {
  Causes causes(ranks);
  const double uneven = add_costs_of_phases(causes);
  add_costs_of_waiting(causes, uneven);
  const RankSteps& mean = ranks.mean();
  add_tiny_batch(causes, ranks.exchange() + mean.of(Phase::optimizer) + mean.copying(causes.is_alone()) + mean.rest());
  add_idle_cores(causes);
  std::vector<Cause> all = causes.take();
  std::ranges::stable_sort(all, std::ranges::greater(), &Cause::gain);
  return all;
}

}  // namespace tandem::inline v0::telemetry
