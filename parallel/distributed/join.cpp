#include <tandem/parallel/distributed/join.h>

#include <exception>

#include <fmt/format.h>

#include <tandem/core/check.h>
#include <tandem/core/warning.h>
#include <tandem/parallel/distributed/group_link.h>
#include <tandem/parallel/distributed/join_state.h>
#include <tandem/parallel/distributed/reducer.h>

namespace tandem::inline v0::parallel {

Join::Join(std::vector<std::shared_ptr<Reducer>> reducers, const JoinOptions& options)
    : reducers_(std::move(reducers)), exceptions_(std::uncaught_exceptions()) {
  const GroupLink& link = reducers_.front()->link();
  std::vector<Buckets*> buckets;
  for (const auto& reducer : reducers_) {
    check<ConfigError>(&reducer->link().group() == &link.group(), "Join: its wrappers have different process groups");
    check<ConfigError>(!reducer->join(),
                       "Join: the wrapper is in a Join already, which has not finished; one Join has all wrappers that "
                       "are trained in one loop: Join(std::tie(first, second))");
    check<ConfigError>(!reducer->syncs_batch_norm(),
                       "Join: the module has batch norms that sync (sync_batch_norm), and would wait in them for ranks "
                       "whose input has ended. Give all ranks equal numbers of batches (DistributedSampler), or leave "
                       "the layers unsynced");
    check<ConfigError>(reducer->parts() == nullptr,
                       "Join: with shard = parameters all ranks gather the parameters in each pass, and would wait for "
                       "ranks whose input has ended. Give all ranks equal numbers of batches (DistributedSampler), or "
                       "take shard = gradients");
    buckets.push_back(&reducer->buckets());
  }
  state_ = std::make_shared<JoinState>(std::move(buckets), link, options);
  for (std::size_t w = 0; w < reducers_.size(); ++w) {
    reducers_[w]->set_join(state_, w);
  }
}

Join::~Join() {
  if (!state_) {
    return;
  }
  if (std::uncaught_exceptions() > exceptions_) {
    const std::string text = core::error_in_flight();
    state_->link().abort(fmt::format("an exception left the scope of its Join{}{}", text.empty() ? "" : ": ", text));
    return;
  }
  constexpr const char* kText =
      "its Join was destroyed without finish(), so that ranks with more input would wait for it for ever; call "
      "join.finish([&] { optimizer.step(); }) after the loop, and also where the loop is left early";
  state_->link().abort(kText);
  try {
    core::warn(fmt::format("Join: {}", kText));
  } catch (...) {  // a handler's; a destructor has nowhere to throw it
  }
}

void Join::samples(std::int64_t count) {
  check<ConfigError>(count > 0, "Join::samples: got {}; expected more than 0: a batch without samples is left out",
                     count);
  check<ConfigError>(state_ != nullptr, "Join::samples: called after finish()");
  state_->set_samples(count);
}

void Join::finish_with(const std::vector<std::function<void()>>& steps) {
  check<ConfigError>(state_ != nullptr, "Join::finish: called a second time; make a Join for each pass over the data");
  check<ConfigError>(steps.size() == reducers_.size(),
                     "Join::finish: got {} functions for {} wrappers; expected one for each, in their order",
                     steps.size(), reducers_.size());
  const auto shadow = [&](std::size_t wrapper) {
    reducers_[wrapper]->shadow();
    steps[wrapper]();
  };
  try {
    while (const auto wrapper = state_->follow()) {
      shadow(*wrapper);
    }
    for (std::size_t wrapper = 0; wrapper < steps.size(); ++wrapper) {
      if (state_->samples_left(wrapper) > 0) {
        shadow(wrapper);
      }
    }
  } catch (...) {
    state_->link().abort(fmt::format("its Join's finish() failed: {}", detail::text_of_exception()));
    state_.reset();
    throw;
  }
  state_.reset();
}

}  // namespace tandem::inline v0::parallel
