#include <tandem/parallel/job/elastic_job.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include <fmt/format.h>

#include <tandem/parallel/job/rank_end.h>

namespace tandem::inline v0::parallel {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kBeforeComingBack{1'000};
constexpr milliseconds kUntilItsOutputIsRead{5};
constexpr milliseconds kMeetingLook{100};

}  // namespace

ElasticJob::ElasticJob(const LaunchOptions& options, JobLink& link, Ranks& ranks, Hooks hooks)
    : options_(options), link_(link), ranks_(ranks), hooks_(std::move(hooks)), membership_(options, link) {}

std::vector<int> ElasticJob::running_members() const {
  std::vector<int> running = membership_.members();
  std::erase_if(running, [&](int rank) { return at(rank).has_ended(); });
  return running;
}

// Those of the running members whose function has not ended.
std::vector<int> ElasticJob::working_members() {
  std::vector<int> working = running_members();
  std::erase_if(working, [&](int rank) { return membership_.done_in(rank) >= 0; });
  return working;
}

void ElasticJob::lose(int rank, const std::string& cause, bool by_chance) {
  if (is_done_ || lost_.contains(rank)) {
    return;
  }
  if (!at(rank).has_ended() && membership_.done_in(rank) >= 0) {  // it has left, and does something else now
    if (std::vector<int> left = working_members(); membership_.has(rank) && !left.empty()) {
      change(std::move(left), cause);
    }
    return;
  }
  if (!at(rank).has_ended()) {  // the others go on once this rank can write no more
    at(rank).signal(SIGKILL, nullptr);
    killed_.emplace(rank, cause);
    return;
  }
  killed_.erase(rank);
  lost_.insert(rank);
  if (membership_.has(rank)) {
    std::vector<int> left = working_members();
    const auto well = std::count_if(ranks_.begin(), ranks_.end(), [&](const auto& other) {
      return !lost_.contains(other->rank()) &&
             (other->has_ended() ? other->status() == 0 : membership_.done_in(other->rank()) >= 0);
    });
    const auto count = static_cast<std::int64_t>(left.size()) + well;
    if (left.empty() && count >= options_.elastic) {
      const bool has_led = rank == membership_.members().front() && membership_.done_in(rank) < 0;
      if (has_led) {  // nobody else shows the results
        hooks_.fail(cause, rank, by_chance);
      } else {
        hooks_.note(fmt::format("{}; all others have ended", cause));
        hooks_.went_on(cause);
      }
      return;
    }
    if (count < options_.elastic) {
      hooks_.fail(fmt::format("{}; {} of {} ranks are left, and --elastic asks for {}", cause, count, options_.ranks,
                              options_.elastic),
                  rank, by_chance);
      return;
    }
    hooks_.note(fmt::format("{}; {} of {} ranks go on", cause, left.size(), options_.ranks));
    hooks_.went_on(cause);
    change(std::move(left), cause);
  } else {
    hooks_.note(fmt::format("{}, while it waited to come back", cause));
  }
  if (starts_ < options_.max_restarts) {
    ++starts_;
    restarts_.push_back({rank, Clock::now() + kBeforeComingBack});
  }
}

const std::string* ElasticJob::why_killed(int rank) const {
  const auto killed = killed_.find(rank);
  return killed == killed_.end() ? nullptr : &killed->second;
}

void ElasticJob::change(std::vector<int> members, const std::string& cause, bool takes_in) {
  is_meeting_ = true;
  next_meeting_look_ = Clock::now() + kMeetingLook;
  hooks_.drop_blame();  // the right rank is found, and others were named because they left the generation
  try {
    membership_.change(std::move(members), cause, takes_in);
  } catch (const Error& error) {
    hooks_.fail(fmt::format("{}; the others cannot go on: {}", cause, error.what()), -1, true);
  }
}

void ElasticJob::take_in_newcomers() {
  std::vector<int> members = working_members();
  std::vector<int> back;
  for (const RankProcess& process : link_.ranks()) {
    if (process.rank < options_.ranks && !at(process.rank).has_ended() && !membership_.has(process.rank)) {
      back.push_back(process.rank);
    }
  }
  // Newcomers come last, so that a rank which has the training's state leads.
  members.insert(members.end(), back.begin(), back.end());
  if (!back.empty()) {
    hooks_.note(fmt::format("rank{} {} {} back: {} go on", back.size() == 1 ? "" : "s", number_list(back),
                            back.size() == 1 ? "is" : "are", members.size()));
  }
  if (!members.empty()) {
    change(std::move(members), kMeetAnew, true);
  }
}

void ElasticJob::look_after(bool is_ending) {
  if (is_meeting_ && Clock::now() >= next_meeting_look_) {
    look_for_absent();
  }
  if (!is_ending) {
    start_again();
  }
}

// A member may have ended its function while the others lost a rank: they must not wait for it.
void ElasticJob::look_for_absent() {
  next_meeting_look_ = Clock::now() + kMeetingLook;
  const std::vector<int> arrived = membership_.arrived();
  std::vector<int> left;
  is_meeting_ = false;
  for (const int rank : membership_.members()) {
    const bool is_here = std::find(arrived.begin(), arrived.end(), rank) != arrived.end();
    const int done_in = membership_.done_in(rank);
    if (is_here || (!at(rank).has_ended() && done_in < 0)) {
      left.push_back(rank);
      is_meeting_ = is_meeting_ || !is_here;
    } else if (done_in == membership_.generation()) {
      return;  // all had met before it left
    }
  }
  if (left.size() < membership_.members().size() && !left.empty()) {
    change(std::move(left), "a rank has ended, and the others meet without it");
  }
}

void ElasticJob::start_again() {
  for (const Restart& restart : std::exchange(restarts_, {})) {
    auto& rank = ranks_[static_cast<std::size_t>(restart.rank)];
    if (Clock::now() < restart.due || !rank->is_complete()) {
      restarts_.push_back({restart.rank, std::max(restart.due, Clock::now() + kUntilItsOutputIsRead)});
      continue;
    }
    try {
      rank = hooks_.start(restart.rank, membership_.generation() + 1);
      lost_.erase(restart.rank);
      hooks_.note(fmt::format("rank {} starts again, and joins the others at the end of an epoch", restart.rank));
    } catch (const IoError& error) {
      hooks_.note(fmt::format("rank {} does not start again: {}", restart.rank, error.what()));
    }
  }
}

ElasticJob::Clock::time_point ElasticJob::next_look() const {
  Clock::time_point next = is_meeting_ ? next_meeting_look_ : Clock::time_point::max();
  for (const Restart& restart : restarts_) {
    next = std::min(next, restart.due);
  }
  return next;
}

bool ElasticJob::becomes_done() {
  if (is_done_ || !running_members().empty()) {
    return false;
  }
  is_done_ = true;
  restarts_.clear();
  return true;
}

}  // namespace tandem::inline v0::parallel
