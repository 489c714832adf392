#include <tandem/parallel/distributed/join.h>

#include <exception>

#include <fmt/format.h>

#include <tandem/core/check.h>
#include <tandem/core/warning.h>
#include <tandem/parallel/distributed/join_state.h>
#include <tandem/parallel/distributed/reducer.h>
#include <tandem/parallel/exception_text.h>

namespace tandem::inline v0::parallel {

Join::Join(std::vector<std::shared_ptr<Reducer>> reducers, const JoinOptions& options)
    : state_(std::make_unique<JoinState>(std::move(reducers), options)), exceptions_(std::uncaught_exceptions()) {}

Join::~Join() {
  if (!state_) {
    return;
  }
  if (std::uncaught_exceptions() > exceptions_) {
    state_->abort("an exception left the scope of its Join");
    return;
  }
  constexpr const char* kText =
      "its Join was destroyed without finish(), so that ranks with more input would wait for it for ever; call "
      "join.finish([&] { optimizer.step(); }) after the loop, and also where the loop is left early";
  state_->abort(kText);
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
  const auto& reducers = state_->reducers();
  check<ConfigError>(steps.size() == reducers.size(),
                     "Join::finish: got {} functions for {} wrappers; expected one for each, in their order",
                     steps.size(), reducers.size());
  const auto shadow = [&](std::size_t wrapper) {
    reducers[wrapper]->shadow();
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
    state_->abort(
        fmt::format("its Join's finish() failed: {}", detail::text_of_exception()));  // who catches it may go on
    state_.reset();
    throw;
  }
  state_.reset();
}

}  // namespace tandem::inline v0::parallel
