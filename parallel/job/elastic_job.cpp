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

}  // namespace

ElasticJob::ElasticJob(const LaunchOptions& options, JobLink& link, Ranks& ranks, Hooks hooks)
    : options_(options), link_(link), ranks_(ranks), hooks_(std::move(hooks)), membership_(options, link) {}

std::vector<int> ElasticJob::running_members() const {
  std::vector<int> running = membership_.members();
  std::erase_if(running, [&](int rank) { return at(rank).has_ended(); });
  return running;
}

void ElasticJob::lose(int rank, const std::string& cause, bool by_chance) {
  if (is_done_ || lost_.contains(rank)) {
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
    std::vector<int> left = running_members();
    const auto well = std::count_if(ranks_.begin(), ranks_.end(), [&](const auto& other) {
      return other->has_ended() && other->status() == 0 && other->rank() != rank;
    });
    const auto count = static_cast<std::int64_t>(left.size()) + well;
    if (left.empty()) {  // nobody can do what the rank has left undone
      hooks_.fail(cause, rank, by_chance);
      return;
    }
    if (count < options_.elastic) {
      hooks_.fail(fmt::format("{}; {} of {} ranks are left, and --elastic asks for {}", cause, count, options_.ranks,
                              options_.elastic),
                  rank, by_chance);
      return;
    }
    hooks_.note(fmt::format("{}; {} of {} ranks go on", cause, left.size(), options_.ranks));
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

void ElasticJob::change(std::vector<int> members, const std::string& cause) {
  hooks_.drop_blame();  // the right rank is found, and others were named because they left the generation
  try {
    membership_.change(std::move(members), cause);
  } catch (const Error& error) {
    hooks_.fail(fmt::format("{}; the others cannot go on: {}", cause, error.what()), -1, true);
  }
}

void ElasticJob::take_in_newcomers() {
  std::vector<int> members = running_members();
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
    change(std::move(members), kMeetAnew);
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

ElasticJob::Clock::time_point ElasticJob::next_start() const {
  Clock::time_point next = Clock::time_point::max();
  for (const Restart& restart : restarts_) {
    next = std::min(next, restart.due);
  }
  return next;
}

bool ElasticJob::is_done() {
  if (is_done_ || !running_members().empty()) {
    return false;
  }
  is_done_ = true;
  restarts_.clear();
  return true;
}

}  // namespace tandem::inline v0::parallel
