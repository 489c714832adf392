#include <tandem/core/span_totals.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

namespace tandem::inline v0::core {

namespace {

std::optional<Effort> effort_of(std::string_view name) noexcept {
  static constexpr std::pair<std::string_view, Effort> kNames[] = {
      {"all_reduce", Effort::exchange}, {"reduce_scatter", Effort::exchange},   {"all_gather", Effort::exchange},
      {"broadcast", Effort::exchange},  {"all_to_all", Effort::exchange},       {"unshard", Effort::unshard},
      {"read", Effort::read},           {"backward of", Effort::backward_here}, {"allocation", Effort::allocation}};
  const auto* found = std::ranges::find(kNames, name, &std::pair<std::string_view, Effort>::first);
  return found != std::end(kNames) ? std::optional(found->second) : std::nullopt;
}

}  // namespace

SpanTotals::SpanTotals() { open(); }
SpanTotals::~SpanTotals() { close(); }

EffortSums SpanTotals::sums() const {
  const std::lock_guard lock(mutex_);
  return sums_;
}

void SpanTotals::reset() noexcept {
  const std::lock_guard lock(mutex_);
  sums_ = {};
}

void SpanTotals::take(const Span& span, const ThreadName& thread) noexcept {
  const std::string_view name = span.name;
  std::optional<Effort> effort = effort_of(name);
  if (!effort) {
    return;
  }
  if (*effort == Effort::backward_here && std::string_view(thread.purpose) != "training") {
    effort = Effort::backward_beside;
  }
  const std::lock_guard lock(mutex_);
  const auto add = [&](Effort to) {
    EffortSum& sum = sums_[static_cast<std::size_t>(to)];
    sum.count += 1;
    sum.seconds += std::chrono::duration<double>(span.ended - span.began).count();
    sum.bytes += static_cast<double>(std::max<std::int64_t>(span.bytes, 0));
  };
  add(*effort);
  if (name == "all_gather") {
    add(Effort::all_gather);
  }
}

}  // namespace tandem::inline v0::core
