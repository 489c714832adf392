#include <tandem/parallel/first_steps.h>

#include <string>

#include <fmt/format.h>

#include <tandem/core/warning.h>
#include <tandem/parallel/comm/process_group.h>
#include <tandem/telemetry/diagnosis.h>

namespace tandem::inline v0::parallel {

namespace {

constexpr double kLongEnough = 1e6;  // in microseconds

}  // namespace

FirstSteps::FirstSteps(ProcessGroup* group) {
  if (group != nullptr) {
    exchange_.emplace(*group);
  }
}

void FirstSteps::after_pass() {
  if (is_over_) {
    return;
  }
  if (++passes_ == 1) {
    times_.emplace();
  }
  if (passes_ < next_look_) {
    return;
  }
  next_look_ *= 4;
  const telemetry::Ranks ranks =
      exchange_ ? exchange_->run(*times_) : telemetry::Ranks({telemetry::RankSteps::of(*times_)});
  const auto elapsed = [](const telemetry::RankSteps& rank) { return rank.count * rank.step_us; };
  if (ranks.most(elapsed) < kLongEnough) {
    return;
  }
  is_over_ = true;
  times_.reset();
  if (exchange_ && exchange_->rank() != 0) {
    return;
  }
  if (const std::string text = telemetry::verdict(ranks); !text.empty()) {
    core::warn(fmt::format("the first {} on {} rank{}: {}. diagnose() and --report say more", ranks.counts(),
                           ranks.count(), ranks.count() == 1 ? "" : "s", text));
  }
}

}  // namespace tandem::inline v0::parallel
