#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include <fmt/format.h>

#include "report.h"
#include "runner.h"

// Barriers and warp functions.

namespace emulated_gpu::detail {

namespace {

constexpr std::uint64_t kGarbage = 0xFBFBFBFBFBFBFBFBU;  // stands for the value of a lane outside of the mask

const char* name_of(Barrier kind) {
  switch (kind) {
    case Barrier::kPlain: return "__syncthreads";
    case Barrier::kCount: return "__syncthreads_count";
    case Barrier::kAnd: return "__syncthreads_and";
    default: return "__syncthreads_or";
  }
}

const char* name_of(Warp kind) {
  switch (kind) {
    case Warp::kSync: return "__syncwarp";
    case Warp::kShuffle: return "__shfl_sync";
    case Warp::kShuffleXor: return "__shfl_xor_sync";
    case Warp::kShuffleUp: return "__shfl_up_sync";
    case Warp::kShuffleDown: return "__shfl_down_sync";
    default: return "a vote (__ballot_sync, __any_sync, __all_sync)";
  }
}

}  // namespace

void Runner::end() {
  threads_[self_].state = Thread::State::kEnded;
  ++ended_;
  if (!at_barrier_.empty()) {
    die(fmt::format("barrier divergence: this thread left the kernel while others wait at a barrier.{}", waiters()));
  }
  const unsigned lane = 1U << (self_ % kWarp);
  left_[self_ / kWarp] |= lane;
  for (unsigned rest = meeting_[self_ / kWarp]; rest != 0; rest &= rest - 1) {
    const unsigned waiting = self_ / kWarp * kWarp + static_cast<unsigned>(std::countr_zero(rest));
    const Thread& other = threads_[waiting];
    if ((other.mask & lane) != 0) {
      die(fmt::format("this thread left the kernel while {} waits for it in {} (mask {:#010x}) at {}:{}", name(waiting),
                      name_of(other.kind), other.mask, other.where.file_name(), other.where.line()));
    }
  }
}

int Runner::barrier(Barrier kind, int predicate, const Location& where) {
  Thread& self = threads_[self_];
  self.where = where;
  if (ended_ != 0) {
    const auto gone = std::find_if(threads_.begin(), threads_.end(),
                                   [](const Thread& t) { return t.state == Thread::State::kEnded; });
    die(fmt::format("barrier divergence: {} at {}:{}, but {} has already left the kernel", name_of(kind),
                    where.file_name(), where.line(), name(static_cast<unsigned>(gone - threads_.begin()))));
  }
  if (at_barrier_.empty()) {
    barrier_kind_ = kind;
    barrier_sum_ = 0;
  } else {
    const Location& other = threads_[at_barrier_.front()].where;
    if (kind != barrier_kind_ || other.line() != where.line() ||
        std::strcmp(other.file_name(), where.file_name()) != 0) {
      die(fmt::format("barrier divergence: this thread is in {} at {}:{}, {} in {} at {}:{}", name_of(kind),
                      where.file_name(), where.line(), name(at_barrier_.front()), name_of(barrier_kind_),
                      other.file_name(), other.line()));
    }
  }
  barrier_sum_ += predicate != 0 ? 1 : 0;
  if (at_barrier_.size() + 1 < count_) {
    self.state = Thread::State::kAtBarrier;
    at_barrier_.push_back(self_);
    wait();
    return barrier_result_;
  }
  const int all = static_cast<int>(count_);
  barrier_result_ = kind == Barrier::kCount ? barrier_sum_
                    : kind == Barrier::kAnd ? static_cast<int>(barrier_sum_ == all)
                                            : static_cast<int>(barrier_sum_ != 0);
  if (races_ != nullptr) {
    races_->clock.barrier();
  }
  if (seed() != 0) {
    std::shuffle(at_barrier_.begin(), at_barrier_.end(), random_);
  }
  for (const unsigned thread : at_barrier_) {
    threads_[thread].state = Thread::State::kReady;
    ready_.push_back(thread);
  }
  at_barrier_.clear();
  return barrier_result_;
}

std::uint64_t Runner::warp(Warp kind, unsigned mask, std::uint64_t value, int lane, int width, const Location& where) {
  Thread& self = threads_[self_];
  const unsigned first = self_ / kWarp * kWarp;
  const unsigned lanes = std::min(kWarp, count_ - first);
  const auto wrong = [&](const std::string& what) {
    die(fmt::format("{} with mask {:#010x} at {}:{}: {}", name_of(kind), mask, where.file_name(), where.line(), what));
  };
  if ((mask >> (self_ - first) & 1) == 0) {
    wrong("the calling lane is not in the mask");
  }
  if (lanes < kWarp && mask >> lanes != 0) {
    wrong(fmt::format("the mask names lanes that do not exist: this warp has {}", lanes));
  }
  if (width < 1 || width > static_cast<int>(kWarp) || !std::has_single_bit(static_cast<unsigned>(width))) {
    wrong(fmt::format("width {} is not a power of two up to 32", width));
  }
  if (const unsigned gone = mask & left_[self_ / kWarp]; gone != 0) {
    wrong(fmt::format("the mask names {}, which has left the kernel",
                      name(first + static_cast<unsigned>(std::countr_zero(gone)))));
  }
  meeting_[self_ / kWarp] |= 1U << (self_ - first);
  self.state = Thread::State::kInWarp;
  self.where = where;
  self.kind = kind;
  self.mask = mask;
  self.lane = lane;
  self.width = width;
  self.value = value;
  if (meeting_complete(first, mask)) {
    conclude_meeting(first, mask);
  } else {
    wait();
  }
  return threads_[self_].result;
}

bool Runner::meeting_complete(unsigned first, unsigned mask) {
  if ((mask & ~meeting_[first / kWarp]) != 0) {
    return false;
  }
  const Thread& self = threads_[self_];
  for (unsigned rest = mask; rest != 0; rest &= rest - 1) {
    const Thread& other = threads_[first + static_cast<unsigned>(std::countr_zero(rest))];
    if (other.mask != mask || other.kind != self.kind) {
      return false;
    }
  }
  return true;
}

void Runner::conclude_meeting(unsigned first, unsigned mask) {
  unsigned votes = 0;
  for (unsigned rest = mask; rest != 0; rest &= rest - 1) {
    const int i = std::countr_zero(rest);
    votes |= threads_[first + static_cast<unsigned>(i)].value != 0 ? 1U << i : 0;
  }
  std::array<unsigned, kWarp> others{};
  std::size_t other_count = 0;
  for (unsigned rest = mask; rest != 0; rest &= rest - 1) {
    const int i = std::countr_zero(rest);
    Thread& thread = threads_[first + static_cast<unsigned>(i)];
    const int segment = i & ~(thread.width - 1);
    const int place = i - segment;
    int from = i;
    switch (thread.kind) {
      case Warp::kShuffle: from = segment + (thread.lane & (thread.width - 1)); break;
      case Warp::kShuffleXor: from = (i ^ thread.lane) < segment + thread.width ? i ^ thread.lane : i; break;
      case Warp::kShuffleUp: from = place - thread.lane >= 0 ? i - thread.lane : i; break;
      case Warp::kShuffleDown: from = place + thread.lane < thread.width ? i + thread.lane : i; break;
      default: break;
    }
    if (thread.kind == Warp::kBallot) {
      thread.result = votes;
    } else {
      const bool there = from >= 0 && from < static_cast<int>(kWarp) && (mask >> from & 1) != 0;
      thread.result = there ? threads_[first + static_cast<unsigned>(from)].value : kGarbage;
    }
    if (first + static_cast<unsigned>(i) != self_) {
      others[other_count++] = first + static_cast<unsigned>(i);
    }
  }
  if (seed() != 0) {
    std::shuffle(others.begin(), others.begin() + static_cast<std::ptrdiff_t>(other_count), random_);
  }
  if (races_ != nullptr) {
    races_->clock.meet(first, mask);
  }
  meeting_[first / kWarp] &= ~mask;
  threads_[self_].state = Thread::State::kReady;
  for (std::size_t i = 0; i < other_count; ++i) {
    threads_[others[i]].state = Thread::State::kReady;
    ready_.push_back(others[i]);
  }
}

std::string Runner::name(unsigned thread) const {
  return fmt::format("thread ({},{},{})", thread % blockDim.x, thread / blockDim.x % blockDim.y,
                     thread / blockDim.x / blockDim.y);
}

std::string Runner::place() const {
  return fmt::format("kernel {}, block ({},{},{}), {}", launch_->name, blockIdx.x, blockIdx.y, blockIdx.z, name(self_));
}

std::string Runner::waiters() const {
  constexpr int kShown = 8;
  std::string text;
  int shown = 0;
  for (unsigned t = 0; t < count_; ++t) {
    const Thread& thread = threads_[t];
    if (thread.state != Thread::State::kAtBarrier && thread.state != Thread::State::kInWarp) {
      continue;
    }
    if (++shown > kShown) {
      return text + "\n  ...";
    }
    const bool in_warp = thread.state == Thread::State::kInWarp;
    text += fmt::format(
        "\n  {} waits in {}{} at {}:{}", name(t), in_warp ? name_of(thread.kind) : name_of(barrier_kind_),
        in_warp ? fmt::format(" (mask {:#010x})", thread.mask) : "", thread.where.file_name(), thread.where.line());
  }
  return text;
}

void Runner::die(const std::string& what) const { report_and_abort(place() + ": " + what); }

}  // namespace emulated_gpu::detail
