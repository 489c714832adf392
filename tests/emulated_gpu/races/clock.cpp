#include "clock.h"

#include <algorithm>
#include <bit>

namespace emulated_gpu::detail {

void View::raise(std::uint64_t key, Time time) {
  Time& known = before_[key];
  known = std::max(known, time);
}

void View::merge(const View& other) {
  for (const auto& [key, time] : other.before_) {
    raise(key, time);
  }
}

bool View::has(std::uint64_t key, Time time) const {
  const auto found = before_.find(key);
  return found != before_.end() && time < found->second;
}

bool View::knows(Who who, Time time) const { return has(whole(who.block()), time) || has(who.number(), time); }

void BlockClock::begin(std::uint32_t block, unsigned threads) {
  block_ = block;
  count_ = threads;
  now_ = 1;
  barrier_ = 1;
  full_.fill(0);
  own_.assign(threads, 0);
  met_.assign(threads, {});
  fences_.clear();
  known_.clear();
}

unsigned BlockClock::lanes(unsigned first) const {
  const unsigned count = std::min(kWarp, count_ - first);
  return count == kWarp ? ~0U : (1U << count) - 1;
}

Time BlockClock::time(unsigned thread) const { return std::max({barrier_, full_[thread / kWarp], own_[thread]}); }

void BlockClock::barrier() {
  barrier_ = ++now_;
  if (!known_.empty()) {
    share(0, count_, ~std::uint64_t{0});
  }
}

void BlockClock::meet(unsigned first, unsigned mask) {
  ++now_;
  if (mask == lanes(first)) {
    full_[first / kWarp] = now_;
  } else {
    std::array<Time, kWarp> all{};
    for (unsigned rest = mask; rest != 0; rest &= rest - 1) {
      const auto& met = met_[first + static_cast<unsigned>(std::countr_zero(rest))];
      std::transform(all.begin(), all.end(), met.begin(), all.begin(), [](Time a, Time b) { return std::max(a, b); });
    }
    for (unsigned rest = mask; rest != 0; rest &= rest - 1) {
      const auto lane = static_cast<unsigned>(std::countr_zero(rest));
      all[lane] = now_;
      own_[first + lane] = now_;
    }
    for (unsigned rest = mask; rest != 0; rest &= rest - 1) {
      met_[first + static_cast<unsigned>(std::countr_zero(rest))] = all;
    }
  }
  if (!known_.empty()) {
    share(first, std::min(first + kWarp, count_), mask);
  }
}

// Threads that meet know afterwards what any of them knew: those of [first, end) whose bit is set, counted from first;
// past the 64th, all.
void BlockClock::share(unsigned first, unsigned end, std::uint64_t mask) {
  const auto takes_part = [&](unsigned thread) { return thread - first >= 64 || (mask >> (thread - first) & 1) != 0; };
  View all;
  const View* last = nullptr;
  for (unsigned thread = first; thread < end; ++thread) {
    if (takes_part(thread) && known_[thread] != nullptr && known_[thread].get() != last) {
      last = known_[thread].get();
      all.merge(*last);
    }
  }
  if (all.empty()) {
    return;
  }
  const auto shared = std::make_shared<const View>(std::move(all));
  for (unsigned thread = first; thread < end; ++thread) {
    if (takes_part(thread)) {
      known_[thread] = shared;
    }
  }
}

void BlockClock::fence(unsigned thread, Scope scope) {
  Fences& fences = fences_[thread];
  known_.resize(count_);
  View known = known_[thread] == nullptr ? View() : *known_[thread];
  for (int s = 0; s <= static_cast<int>(scope); ++s) {
    known.merge(fences.seen[static_cast<std::size_t>(s)]);
  }
  known_[thread] = std::make_shared<const View>(known);
  // Everything that happened before this fence.
  const unsigned first = thread / kWarp * kWarp;
  known.add_block(block_, barrier_);
  for (unsigned lane = 0; first + lane < std::min(first + kWarp, count_); ++lane) {
    known.add(Who(block_, first + lane), std::max(met_[thread][lane], full_[thread / kWarp]));
  }
  own_[thread] = ++now_;
  known.add(Who(block_, thread), now_);
  for (int s = 0; s <= static_cast<int>(scope); ++s) {
    fences.released[static_cast<std::size_t>(s)] = known;
  }
}

void BlockClock::load(unsigned thread, const View& view, Scope scope) {
  if (!view.empty()) {
    fences_[thread].seen[static_cast<std::size_t>(scope)].merge(view);
  }
}

void BlockClock::store(unsigned thread, View& view, Scope scope, bool keeps) const {
  if (!keeps) {
    view = {};
  }
  if (const auto fences = fences_.find(thread); fences != fences_.end()) {
    view.merge(fences->second.released[static_cast<std::size_t>(scope)]);
  }
}

bool BlockClock::before_by_fences_or_warp(Who who, Time time, unsigned thread) const {
  const unsigned warp = thread / kWarp;
  if (who.block() == block_ && who.thread() / kWarp == warp &&
      time < std::max(full_[warp], met_[thread][who.thread() % kWarp])) {
    return true;
  }
  return !known_.empty() && known_[thread] != nullptr && known_[thread]->knows(who, time);
}

}  // namespace emulated_gpu::detail
