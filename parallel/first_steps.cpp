#include <tandem/parallel/first_steps.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include <tandem/core/warning.h>
#include <tandem/parallel/comm/process_group.h>
#include <tandem/telemetry/diagnosis.h>

namespace tandem::inline v0::parallel {

namespace {

constexpr double kLongEnough = 1e6;  // in microseconds
constexpr std::int64_t kManyPasses = 64;
constexpr std::int64_t kManySteps = 256;

// The time of a rank's steps, without the longest one.
double usual_time(const telemetry::RankSteps& rank) { return rank.count * rank.step_us - rank.longest_us; }

// Whether one step, with a checkpoint or a pause, takes so much of the time that the others count for little.
bool has_pause(const telemetry::RankSteps& rank) {
  return rank.count < 2 || usual_time(rank) / (rank.count - 1) * 1.2 < rank.step_us;
}

// Whether a host runs ahead of its GPUs. A single step is in its time even so.
bool is_host_of_gpus(const telemetry::RankSteps& rank) { return rank.count > 1 && rank.runs_ahead(); }

// Whether TANDEM_ADVICE=0 asks for silence. The ranks exchange their times even so: one rank alone may ask for it.
bool is_silent() {
  const char* text = std::getenv("TANDEM_ADVICE");
  return text != nullptr && std::string_view(text) == "0";
}

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
    times_.emplace(false);  // the run keeps its memory as it is
  }
  if (passes_ < next_look_) {
    return;
  }
  next_look_ *= 4;
  const telemetry::Ranks ranks =
      exchange_ ? exchange_->run(*times_) : telemetry::Ranks({telemetry::RankSteps::of(*times_)});
  const bool is_window = ranks.is_gpu_time();            // which has the last steps, however many were made
  const bool has_none = !ranks.without_steps().empty();  // updates without an Optimizer are not seen
  if (std::ranges::any_of(ranks.all(), is_host_of_gpus) || (has_none && passes_ >= kManyPasses)) {
    end();
  } else if (!has_none && (ranks.most(usual_time) >= kLongEnough || (is_window && passes_ >= kManySteps))) {
    if (std::ranges::any_of(ranks.all(), has_pause)) {
      times_->reset();  // the next look is at steps without the pause
    } else {
      end();
      tell(ranks);
    }
  }
}

void FirstSteps::end() {
  is_over_ = true;
  times_.reset();
}

void FirstSteps::tell(const telemetry::Ranks& ranks) const {
  if ((exchange_ && exchange_->rank() != 0) || is_silent()) {
    return;
  }
  const std::string text = telemetry::verdict(ranks);
  if (text.empty()) {
    return;
  }
  try {
    core::warn(fmt::format("{} on {} rank{}: {}. diagnose() and --report say more [TDM-W604]",
                           ranks.is_gpu_time() ? fmt::format("{} of the first {}", ranks.counts(), passes_)
                                               : "the first " + ranks.counts(),
                           ranks.count(), ranks.count() == 1 ? "" : "s", text));
  } catch (...) {  // a handler's: advice ends no training
  }
}

}  // namespace tandem::inline v0::parallel
