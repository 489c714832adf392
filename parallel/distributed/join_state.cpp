#include <tandem/parallel/distributed/join_state.h>

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/check.h>
#include <tandem/core/span.h>
#include <tandem/parallel/comm/on_cpu.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::parallel {

namespace {

// The ranks for which `fits` holds.
template <class Fits>
std::vector<int> ranks_where(std::size_t count, const Fits& fits) {
  std::vector<int> ranks;
  for (std::size_t r = 0; r < count; ++r) {
    if (fits(r)) {
      ranks.push_back(static_cast<int>(r));
    }
  }
  return ranks;
}

// The groups of the Joins that this thread has made, while these live.
thread_local std::vector<std::weak_ptr<const ProcessGroup*>> groups_in_joins;

bool another_group_in_a_join(const ProcessGroup& group) {
  std::erase_if(groups_in_joins, [](const auto& one) { return one.expired(); });
  for (const auto& one : groups_in_joins) {
    if (const auto other = one.lock(); other != nullptr && *other != &group) {
      return true;
    }
  }
  return false;
}

constexpr const char* kRule =
    "Join: all ranks must be in one, with the same wrappers, and in its scope their group is for those alone, since "
    "ranks whose input has ended take part in nothing else";

// Makes the Join's first call, which a rank without a Join does not match. Later calls have a plan's name.
template <class Call>
auto explained(const Call& call) {
  try {
    return call();
  } catch (const CommError& error) {
    if (error.details().fault != CommFault::mismatch) {
      throw;
    }
    throw CommError(fmt::format("{}: {}", kRule, error.what()), error.details());
  }
}

}  // namespace

JoinState::JoinState(std::vector<Buckets*> buckets, const GroupLink& link, const JoinOptions& options)
    : link_(link),
      options_(options),
      ranks_(static_cast<std::size_t>(link.size())),
      record_(zeros({static_cast<std::int64_t>(ranks_ * buckets.size() * sizeof(Entry) / sizeof(std::int64_t))},
                    on_cpu(DType::i64))),
      said_(reinterpret_cast<Entry*>(record_.mutable_data<std::int64_t>()), ranks_ * buckets.size()) {
  check<ConfigError>(options_.reduction != Reduction::none,
                     "Join: reduction is none; expected what turns the loss of a batch into one number, mean or sum");
  check<ConfigError>(options_.batch_dim >= 0, "Join: batch_dim is {}; expected 0 or more", options_.batch_dim);
  ProcessGroup& group = link_.group();
  if (ranks_ > 1 && another_group_in_a_join(group)) {
    constexpr const char* kText =
        "this thread is in a Join over another process group, which has not finished: ranks that end in one would be "
        "waited for in the other. Train in one loop what shares a group, and finish() it before the next";
    link_.abort(fmt::format("Join: {}", kText));  // ranks in only one of the Joins would wait
    fail<ConfigError>("Join: {}", kText);
  }
  if (ranks_ > 1) {
    const PlanName name{.purpose = "a Join's record of who has input", .advice = kRule};
    plan_ = explained([&] { return group.plan_all_reduce(record_.raw(), ReduceOp::sum, name); });
    token_ = std::make_shared<const ProcessGroup*>(&group);
    groups_in_joins.emplace_back(token_);
  }
  for (Buckets* one : buckets) {
    wrappers_.push_back({one, one->parameter_versions()});
  }
  check_nothing_left();
}

std::vector<JoinState::Entry> JoinState::said_of(std::size_t wrapper) const {
  std::vector<Entry> said;
  for (std::size_t r = 0; r < ranks_; ++r) {
    said.push_back(said_[r * wrappers_.size() + wrapper]);
  }
  return said;
}

// Refuses gradients that no_sync() left before the Join: their number of samples is unknown. Gradients from before
// wrapping are refused when a pass adds to them, since the loop may begin with zero_grad().
void JoinState::check_nothing_left() {
  for (Wrapper& wrapper : wrappers_) {
    wrapper.accumulated.early = wrapper.buckets->has_new_from(Buckets::Origin::local_pass) ? 1 : 0;
  }
  exchange(std::nullopt);
  for (std::size_t w = 0; w < wrappers_.size(); ++w) {
    check_none_early(said_of(w));
    wrappers_[w].accumulated = {};
  }
}

void JoinState::check_none_early(const std::vector<Entry>& said) const {
  const auto ranks = ranks_where(said.size(), [&](std::size_t r) { return said[r].early != 0; });
  check<ConfigError>(ranks.empty(),
                     "Join: on {} there are gradients that were not reduced, from no_sync() or from before wrapping, "
                     "and it is not known how many samples they are of; call zero_grad() before, or reduce them",
                     link_.names().list(ranks));
}

std::int64_t JoinState::samples_of(std::span<const Shape> inputs) {
  if (options_.reduction == Reduction::sum) {
    return 1;  // the weight of a pass comes from its loss
  }
  if (next_samples_) {
    return *std::exchange(next_samples_, std::nullopt);
  }
  std::optional<std::int64_t> found;
  for (const Shape& shape : inputs) {
    if (shape.ndim() > options_.batch_dim) {
      const std::int64_t size = shape[options_.batch_dim];
      check<ConfigError>(found.value_or(size) == size,
                         "Join: how many samples has this batch? The inputs have {} and {} in dimension {}; say it "
                         "before each forward pass: join.samples(count)",
                         *found, size, options_.batch_dim);
      found = size;
    }
  }
  check<ConfigError>(found.has_value(),
                     "Join: how many samples has this batch? No input of the module has a dimension {}; say it before "
                     "each forward pass: join.samples(count)",
                     options_.batch_dim);
  check<ConfigError>(*found > 0,
                     "Join: the batch has no samples, of which there is no mean; leave it out: ranks need not have as "
                     "many batches");
  return *found;
}

void JoinState::begin_pass(std::size_t wrapper, std::int64_t samples) {
  auto& [buckets, versions, before, with_pass] = wrappers_[wrapper];
  const std::int64_t gradients = buckets->set_of_gradients();
  if (gradients == 0) {
    before = {};
  }
  if (before.samples > 0 && before.unit != samples) {
    buckets->scale_all(static_cast<double>(before.unit) / static_cast<double>(samples));
    before.unit = samples;
  }
  const bool is_onto = before.samples == 0;
  const bool is_early = is_onto && buckets->has_new_from(Buckets::Origin::before_wrapping);
  with_pass = {.samples = before.samples + samples,
               .passes = before.passes + 1,
               .unit = samples,
               .onto = is_onto ? gradients : 0,
               .early = is_early ? 1 : 0};
}

void JoinState::end_local_pass(std::size_t wrapper) {
  const Entry& with_pass = wrappers_[wrapper].with_pass;
  check<AutogradError>(with_pass.onto == 0,
                       "Join: there are gradients {} already, where an accumulation in no_sync() begins; call "
                       "zero_grad() after each step",
                       with_pass.early != 0 ? "from before wrapping" : "that were reduced");
  wrappers_[wrapper].accumulated = with_pass;
}

PassWeights JoinState::reduce(std::size_t wrapper) {
  wrappers_[wrapper].accumulated = wrappers_[wrapper].with_pass;
  exchange(wrapper);
  return weights_of(wrapper);
}

std::optional<std::size_t> JoinState::follow() {
  for (Wrapper& wrapper : wrappers_) {
    if (wrapper.buckets->set_of_gradients() == 0) {
      wrapper.accumulated = {};
    }
  }
  exchange(std::nullopt);
  const auto theirs = std::ranges::find_if(said_, [](const Entry& entry) { return entry.turn != 0; });
  if (theirs == said_.end()) {
    return std::nullopt;
  }
  return static_cast<std::size_t>(theirs - said_.begin()) % wrappers_.size();
}

std::int64_t JoinState::samples_left(std::size_t wrapper) const {
  std::int64_t sum = 0;
  for (const Entry& entry : said_of(wrapper)) {
    sum += entry.samples;
  }
  return sum;
}

PassWeights JoinState::weights_of(std::size_t wrapper) {
  const std::vector<Entry> said = said_of(wrapper);
  check_none_early(said);
  const auto giving = ranks_where(ranks_, [&](std::size_t r) { return said[r].samples != 0; });
  const auto onto = [&](int r) { return said[static_cast<std::size_t>(r)].onto != 0; };
  for (const int r : giving) {
    const int first = giving.front();
    check<ConfigError>(onto(r) == onto(first),
                       "Join: on rank {} this pass adds to gradients that were reduced before, and on rank {} not; "
                       "call zero_grad() on all ranks or on none",
                       link_.names().rank(onto(r) ? r : first), link_.names().rank(onto(r) ? first : r));
  }
  const int buffers_from = giving.empty() ? -1 : giving.front();
  const Entry mine = std::exchange(wrappers_[wrapper].accumulated, {});
  if (options_.reduction == Reduction::sum) {
    // A rank without samples adds nothing. But if the others add to a reduced gradient, this rank must have that
    // gradient too.
    const std::int64_t theirs = giving.empty() ? 0 : said[static_cast<std::size_t>(giving.front())].onto;
    check<ConfigError>(
        theirs == 0 || mine.samples > 0 || wrappers_[wrapper].buckets->set_of_gradients() == theirs,
        "Join: the other ranks' passes add to gradients that were reduced before, of other parameters "
        "than have one here in finish(); call zero_grad() of the same before the Join, and let finish()'s "
        "step do what the loop does between two backward passes, zero_grad() included");
    return {mine.samples > 0 || theirs != 0 ? 1.0 : 0.0, 1.0, buffers_from};
  }
  const auto most = [&](std::int64_t Entry::* number) { return std::ranges::max(said, {}, number).*number; };
  const std::int64_t unit = most(&Entry::unit);
  const std::int64_t samples = unit * static_cast<std::int64_t>(ranks_) * most(&Entry::passes);
  // Both factors are exactly 1 if all ranks have equally many samples.
  return {static_cast<double>(mine.unit) / static_cast<double>(unit),
          static_cast<double>(samples) / static_cast<double>(samples_left(wrapper)), buffers_from};
}

// A sum over the ranks, each of which fills in its own part and leaves 0 in the others.
void JoinState::exchange(std::optional<std::size_t> turn) {
  const SpanScope timed(Phase::reduce);
  link_.check_open();
  std::ranges::fill(said_, Entry{});
  for (std::size_t w = 0; w < wrappers_.size(); ++w) {
    Entry& mine = said_[static_cast<std::size_t>(link_.rank()) * wrappers_.size() + w];
    const std::uint64_t now = wrappers_[w].buckets->parameter_versions();
    mine = wrappers_[w].accumulated;
    mine.turn = turn == w ? 1 : 0;
    mine.changed = std::exchange(wrappers_[w].parameter_versions, now) != now ? 1 : 0;
    mine.reduction = static_cast<std::int64_t>(options_.reduction);
  }
  if (plan_) {
    plan_->run();
    check_agreement();
  }
}

void JoinState::check_agreement() const {
  std::vector<std::size_t> turns(ranks_, 0);  // the wrapper that a rank reduces, from 1; 0: its input has ended
  std::vector<bool> steps(ranks_, false);
  bool all_step_alike = true;
  for (std::size_t i = 0; i < said_.size(); ++i) {
    const std::size_t r = i / wrappers_.size();
    const std::size_t w = i % wrappers_.size();
    check<ConfigError>(said_[i].reduction == said_[0].reduction,
                       "Join: the ranks have different options: the losses of one are means, of another one sums");
    turns[r] = said_[i].turn != 0 ? w + 1 : turns[r];
    steps[r] = steps[r] || said_[i].changed != 0;
    all_step_alike = all_step_alike && said_[i].changed == said_[w].changed;
  }
  const auto active = ranks_where(ranks_, [&](std::size_t r) { return turns[r] != 0; });
  const auto turn_of = [&](int r) { return turns[static_cast<std::size_t>(r)]; };
  for (const int r : active) {
    const int first = active.front();
    check<ConfigError>(turn_of(r) == turn_of(first),
                       "Join: rank {} reduces gradients of wrapper {} and rank {} those of wrapper {} (in the order in "
                       "which the Join got them); all ranks make the same passes in the same order",
                       link_.names().rank(first), turn_of(first) - 1, link_.names().rank(r), turn_of(r) - 1);
  }
  if (all_step_alike) {
    return;
  }
  const auto ended = ranks_where(ranks_, [&](std::size_t r) { return turns[r] == 0; });
  const auto stepped = ranks_where(ranks_, [&](std::size_t r) { return steps[r]; });
  const auto not_stepped = ranks_where(ranks_, [&](std::size_t r) { return !steps[r]; });
  const std::string who = not_stepped.empty() ? "of different wrappers"
                                              : fmt::format("on {} and not on {}", link_.names().list(stepped),
                                                            link_.names().list(not_stepped));
  fail<ConfigError>(
      "Join: since the last reduced pass parameters were changed {}{}. What the loop does between two backward "
      "passes must be what finish() is given: join.finish([&] {{ optimizer.step(); }})",
      who, ended.empty() ? "" : fmt::format("; the input has ended on {}", link_.names().list(ended)));
}

}  // namespace tandem::inline v0::parallel
