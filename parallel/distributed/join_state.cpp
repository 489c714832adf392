#include <tandem/parallel/distributed/join_state.h>

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/check.h>
#include <tandem/core/step_times.h>
#include <tandem/parallel/distributed/reducer.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::parallel {

namespace {

// "rank 1", "ranks 0, 2".
std::string name(const std::vector<std::size_t>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

// Of the Joins that this thread has made, while they live.
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

// A call of the Join's own, which ranks without one do not make.
template <class Call>
auto explained(const Call& call) {
  try {
    return call();
  } catch (const CommError& error) {
    if (error.details().fault != CommFault::mismatch) {
      throw;
    }
    throw CommError(fmt::format("Join: all ranks must be in one, with the same wrappers, and in its scope their group "
                                "is for those alone, since ranks whose input has ended take part in nothing else: {}",
                                error.what()),
                    error.details());
  }
}

}  // namespace

JoinState::JoinState(std::vector<std::shared_ptr<Reducer>> reducers, const JoinOptions& options)
    : reducers_(std::move(reducers)),
      options_(options),
      rank_(static_cast<std::size_t>(reducers_.front()->group().rank())),
      ranks_(static_cast<std::size_t>(reducers_.front()->group().size())),
      width_(fields + wrapper_fields * reducers_.size()),
      record_(zeros({static_cast<std::int64_t>(ranks_ * width_)},
                    {.dtype = DType::i64, .device = Device(DeviceType::cpu, 0)})),
      values_(record_.mutable_span<std::int64_t>()),
      accumulated_(reducers_.size()),
      with_pass_(reducers_.size()),
      versions_(reducers_.size()) {
  check<ConfigError>(options_.reduction != Reduction::none,
                     "Join: reduction is none; expected what turns the loss of a batch into one number, mean or sum");
  check<ConfigError>(reducers_.size() < 64, "Join: got {} wrappers; expected at most 63", reducers_.size());
  check<ConfigError>(options_.batch_dim >= 0, "Join: batch_dim is {}; expected 0 or more", options_.batch_dim);
  ProcessGroup& group = reducers_.front()->group();
  for (const auto& reducer : reducers_) {
    check<ConfigError>(&reducer->group() == &group, "Join: its wrappers have different process groups");
    check<ConfigError>(!reducer->joins(),
                       "Join: the wrapper is in a Join already, which has not finished; one Join has all wrappers that "
                       "are trained in one loop: Join(std::tie(first, second))");
  }
  if (ranks_ > 1 && another_group_in_a_join(group)) {
    constexpr const char* kText =
        "this thread is in a Join over another process group, which has not finished: ranks that end in one would be "
        "waited for in the other. Train in one loop what shares a group, and finish() it before the next";
    reducers_.front()->abort(fmt::format("Join: {}", kText));  // ranks that are in one Join only would wait
    fail<ConfigError>("Join: {}", kText);
  }
  if (ranks_ > 1) {
    plan_ = explained([&] { return group.plan_all_reduce(record_.raw()); });
  }
  if (ranks_ > 1) {
    token_ = std::make_shared<const ProcessGroup*>(&group);
    groups_in_joins.emplace_back(token_);
  }
  changed_wrappers();
  check_nothing_left();
  for (std::size_t w = 0; w < reducers_.size(); ++w) {
    reducers_[w]->set_join(this, w);
  }
}

// Gradients that no_sync() left before the Join, of which nobody knows how many samples they are of. Those from before
// wrapping are looked at when they are added to: the loop may begin with zero_grad().
void JoinState::check_nothing_left() {
  for (std::size_t w = 0; w < reducers_.size(); ++w) {
    accumulated_[w].early = reducers_[w]->has_local_gradients();
  }
  exchange(std::nullopt);
  for (std::size_t w = 0; w < reducers_.size(); ++w) {
    check_none_early(w);
  }
  accumulated_.assign(reducers_.size(), {});
}

void JoinState::check_none_early(std::size_t wrapper) const {
  std::vector<std::size_t> ranks;
  for (std::size_t r = 0; r < ranks_; ++r) {
    if (said_of(wrapper, r, its_early) != 0) {
      ranks.push_back(r);
    }
  }
  check<ConfigError>(ranks.empty(),
                     "Join: on {} there are gradients that were not reduced, from no_sync() or from before wrapping, "
                     "and it is not known how many samples they are of; call zero_grad() before, or reduce them",
                     name(ranks));
}

JoinState::~JoinState() {
  for (const auto& reducer : reducers_) {
    reducer->set_join(nullptr, 0);
  }
}

void JoinState::abort(std::string_view reason) {
  if (ranks_ > 1) {
    reducers_.front()->abort(reason);
  }
}

std::int64_t JoinState::samples_of(std::span<const Shape> inputs) {
  if (options_.reduction == Reduction::sum) {
    return 1;  // a pass weighs what its loss does
  }
  if (next_samples_) {
    return *std::exchange(next_samples_, std::nullopt);
  }
  std::optional<std::int64_t> found;
  for (const Shape& shape : inputs) {
    if (shape.ndim() > options_.batch_dim) {
      const std::int64_t size = shape[static_cast<std::size_t>(options_.batch_dim)];
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
  Accumulated& before = accumulated_[wrapper];
  const std::int64_t gradients = reducers_[wrapper]->set_of_gradients();
  if (gradients == 0) {
    before = {};
  }
  if (before.samples > 0 && before.unit != samples) {
    reducers_[wrapper]->scale_gradients(static_cast<double>(before.unit) / static_cast<double>(samples));
    before.unit = samples;
  }
  with_pass_[wrapper] = {before.samples + samples, before.passes + 1, samples, before.samples == 0 ? gradients : 0,
                         before.samples == 0 && reducers_[wrapper]->has_early_gradients()};
}

void JoinState::end_local_pass(std::size_t wrapper) {
  check<AutogradError>(with_pass_[wrapper].onto == 0,
                       "Join: there are gradients {} already, where an accumulation in no_sync() begins; call "
                       "zero_grad() after each step",
                       with_pass_[wrapper].early ? "from before wrapping" : "that were reduced");
  accumulated_[wrapper] = with_pass_[wrapper];
}

JoinState::Turn JoinState::reduce(std::size_t wrapper) {
  std::swap(accumulated_[wrapper], with_pass_[wrapper]);
  exchange(wrapper);
  return turn_of(wrapper);
}

std::optional<std::size_t> JoinState::follow() {
  for (std::size_t w = 0; w < reducers_.size(); ++w) {
    if (reducers_[w]->set_of_gradients() == 0) {
      accumulated_[w] = {};
    }
  }
  exchange(std::nullopt);
  for (std::size_t r = 0; r < ranks_; ++r) {
    if (const std::int64_t theirs = said(r, turn); theirs > 0) {
      return static_cast<std::size_t>(theirs - 1);
    }
  }
  return std::nullopt;
}

std::int64_t JoinState::samples_left(std::size_t wrapper) const {
  std::int64_t sum = 0;
  for (std::size_t r = 0; r < ranks_; ++r) {
    sum += said_of(wrapper, r, its_samples);
  }
  return sum;
}

JoinState::Turn JoinState::turn_of(std::size_t wrapper) {
  std::int64_t all_samples = 0;
  std::int64_t most_passes = 0;
  std::int64_t largest_unit = 0;
  std::optional<std::size_t> first;
  check_none_early(wrapper);
  for (std::size_t r = 0; r < ranks_; ++r) {
    all_samples += said_of(wrapper, r, its_samples);
    most_passes = std::max(most_passes, said_of(wrapper, r, its_passes));
    largest_unit = std::max(largest_unit, said_of(wrapper, r, its_unit));
    if (said_of(wrapper, r, its_samples) == 0) {
      continue;
    }
    first = first.value_or(r);
    check<ConfigError>(
        (said_of(wrapper, r, its_onto) != 0) == (said_of(wrapper, *first, its_onto) != 0),
        "Join: on rank {} this pass adds to gradients that were reduced before, and on rank {} not; call "
        "zero_grad() on all ranks or on none",
        said_of(wrapper, r, its_onto) != 0 ? r : *first, said_of(wrapper, r, its_onto) != 0 ? *first : r);
  }
  const int buffers_from = first ? static_cast<int>(*first) : -1;
  const Accumulated mine = std::exchange(accumulated_[wrapper], {});
  if (options_.reduction == Reduction::sum) {
    // To what was reduced before, which all ranks have, one without samples adds nothing; but it has it, too.
    const std::int64_t theirs = first ? said_of(wrapper, *first, its_onto) : 0;
    const bool all_have_more = theirs != 0;
    check<ConfigError>(
        !all_have_more || mine.samples > 0 || reducers_[wrapper]->set_of_gradients() == theirs,
        "Join: the other ranks' passes add to gradients that were reduced before, of other parameters "
        "than have one here in finish(); call zero_grad() of the same before the Join, and let finish()'s "
        "step do what the loop does between two backward passes, zero_grad() included");
    return {mine.samples > 0 || all_have_more ? 1.0 : 0.0, 1.0, buffers_from};
  }
  // Both exactly 1 where all have as many.
  return {static_cast<double>(mine.unit) / static_cast<double>(largest_unit),
          static_cast<double>(largest_unit * static_cast<std::int64_t>(ranks_) * most_passes) /
              static_cast<double>(all_samples),
          buffers_from};
}

// Of each wrapper, whether its parameters have changed since the last call: a bit.
std::int64_t JoinState::changed_wrappers() {
  std::int64_t bits = 0;
  for (std::size_t w = 0; w < reducers_.size(); ++w) {
    const std::uint64_t now = reducers_[w]->parameter_versions();
    bits |= std::exchange(versions_[w], now) != now ? std::int64_t{1} << w : 0;
  }
  return bits;
}

void JoinState::exchange(std::optional<std::size_t> turn_of_mine) {
  const PhaseScope timed(Phase::reduce);
  reducers_.front()->check_group();
  std::fill(values_.begin(), values_.end(), 0);
  const auto mine = values_.subspan(rank_ * width_, width_);
  mine[turn] = turn_of_mine ? static_cast<std::int64_t>(*turn_of_mine) + 1 : 0;
  mine[changed] = changed_wrappers();
  mine[reduction] = static_cast<std::int64_t>(options_.reduction);
  for (std::size_t w = 0; w < reducers_.size(); ++w) {
    const Accumulated& given = accumulated_[w];
    const auto said = mine.subspan(fields + wrapper_fields * w, wrapper_fields);
    said[its_samples] = given.samples;
    said[its_passes] = given.passes;
    said[its_unit] = given.unit;
    said[its_onto] = given.onto;
    said[its_early] = given.early ? 1 : 0;
  }
  if (!plan_) {
    return;
  }
  explained([&] { plan_->run(); });
  check_agreement();
}

void JoinState::check_agreement() const {
  std::vector<std::size_t> ended;
  std::vector<std::size_t> stepped;
  std::vector<std::size_t> not_stepped;
  std::optional<std::size_t> active;
  for (std::size_t r = 0; r < ranks_; ++r) {
    check<ConfigError>(said(r, reduction) == said(0, reduction),
                       "Join: the ranks have different options: the losses of one are means, of another one sums");
    (said(r, changed) != 0 ? stepped : not_stepped).push_back(r);
    if (said(r, turn) == 0) {
      ended.push_back(r);
      continue;
    }
    active = active.value_or(r);
    check<ConfigError>(said(r, turn) == said(*active, turn),
                       "Join: rank {} reduces gradients of wrapper {} and rank {} those of wrapper {} (in the order in "
                       "which the Join got them); all ranks make the same passes in the same order",
                       *active, said(*active, turn) - 1, r, said(r, turn) - 1);
  }
  for (std::size_t r = 1; r < ranks_; ++r) {
    if (said(r, changed) != said(0, changed)) {
      const std::string who = stepped.size() == ranks_
                                  ? "of different wrappers"
                                  : fmt::format("on {} and not on {}", name(stepped), name(not_stepped));
      fail<ConfigError>(
          "Join: since the last reduced pass parameters were changed {}{}. What the loop does between two backward "
          "passes must be what finish() is given: join.finish([&] {{ optimizer.step(); }})",
          who, ended.empty() ? "" : fmt::format("; the input has ended on {}", name(ended)));
    }
  }
}

}  // namespace tandem::inline v0::parallel
