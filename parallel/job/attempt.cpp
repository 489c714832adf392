#include <tandem/parallel/job/attempt.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/wait.h>

#include <fmt/format.h>

#include <tandem/parallel/comm/faults.h>
#include <tandem/parallel/job/elastic_job.h>
#include <tandem/parallel/job/local_rank.h>
#include <tandem/parallel/job/signals.h>

// The ranks of one node, from their start to their end. run() sleeps in poll() until a rank has ended or written
// output, a signal has arrived, or the job's link has a message. Then run() handles each event in turn.
//
// The first cause of a failure stays, so the order of handling matters:
//
// - A process that ended is blamed with its exit code or signal, which only its parent knows.
// - A rank whose connection closed is only a suspect for half a second, or a second on another node. Its process has
//   probably ended, and its launcher is about to report how.
// - A rank that was silent for too long is blamed at once, and so is a rank that a verdict names.
//
// fail() then publishes the verdict, which makes the other ranks and nodes throw. A second later the ranks get SIGTERM,
// and after the kill timeout SIGKILL.
//
// In an elastic job lose() comes before fail(): the others go on (elastic_job.h), unless too few of them are left.

namespace tandem::inline v0::parallel {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kBeforeSigterm{1'000};   // time for the ranks to hear the verdict and report their own errors
constexpr milliseconds kForTheEnd{500};         // from the end of a rank's connection to the end of its process
constexpr milliseconds kForItsLauncher{1'000};  // the same for a rank on another node
constexpr milliseconds kAttemptLook{50};
constexpr std::size_t kMaxWaiting = std::size_t{4} << 20;  // bytes to write; beyond this the ranks must wait too
constexpr std::size_t kLastWords = 200;
constexpr std::string_view kErrorMark = ": error: ";  // begins the last words of most programs

// The rank's own last words show why it failed. A rank that was killed from outside had no time for any.
std::string last_words(const LocalRank& rank) {
  const std::string words = words_at_the_end(rank.last_lines());
  return words.empty() ? "" : ": " + one_line(words, kLastWords);
}

bool is_from_outside(int status) {
  return WIFSIGNALED(status) && (WTERMSIG(status) == SIGKILL || WTERMSIG(status) == SIGTERM ||
                                 WTERMSIG(status) == SIGINT || WTERMSIG(status) == SIGHUP);
}

// The signal that a rank has caught and obeyed, by the shells' rule for exit codes, or 0. To restart the rank would
// undo what somebody asked for.
int signal_obeyed(int status) {
  const int signal = WIFEXITED(status) ? WEXITSTATUS(status) - 128 : 0;
  return signal == SIGINT || signal == SIGTERM ? signal : 0;
}

class Attempt {
 public:
  Attempt(const LaunchOptions& options, const std::string& file, JobLink& link, const SignalCatcher& signals,
          GroupGuard& guard, OutputQueue& output)
      : options_(options), file_(file), link_(link), signals_(signals), guard_(guard), output_(output) {
    if (options.elastic > 0) {
      elastic_.emplace(options, link, ranks_, elastic_hooks());
    }
    for (int i = 0; i < options.ranks; ++i) {
      ranks_.push_back(start(i, 0));
    }
  }

  AttemptResult run() {
    do {
      wait();
      take_signals();
      take_messages();
      for (const auto& rank : ranks_) {
        if (output_.size() < kMaxWaiting) {
          rank->pump(output_);
        }
      }
      take_ended();
      judge_suspects();
      look_after_elastic_job();
      press_on();
      keep_guarded();
      output_.write_some();
      stop_without_reader();
    } while (!is_over());
    conclude();
    return std::move(result_);
  }

 private:
  using Clock = std::chrono::steady_clock;

  struct Suspect {
    int rank;
    std::string why;
    Clock::time_point due;          // the wait for a better reason ends here
    bool is_of_generation = false;  // other members say so
  };
  std::unique_ptr<LocalRank> start(int local, int first_generation) const {
    return std::make_unique<LocalRank>(
        options_, options_.node * options_.ranks + local, link_.attempt() > 0 || first_generation > 0,
        ChildPlan{file_, options_.command, rank_environment(options_, link_, local, first_generation)},
        guard_.groups()[static_cast<std::size_t>(local)]);
  }

  ElasticJob::Hooks elastic_hooks() {
    return {.fail =
                [this](const std::string& cause, int rank, bool by_chance) {
                  if (is_decided()) {  // the ranks that are left must not wait for others
                    publish(cause);
                  }
                  fail(cause, rank, by_chance);
                },
            .went_on = [this](const std::string& cause) { result_.outcome.lost.push_back(cause); },
            .note = [this](const std::string& text) { note(text); },
            .start = [this](int rank, int first_generation) { return start(rank, first_generation); },
            .drop_blame =
                [this] { std::erase_if(suspects_, [](const Suspect& suspect) { return suspect.is_of_generation; }); }};
  }

  LocalRank* local(int rank) {
    const int index = rank - options_.node * options_.ranks;
    return index >= 0 && index < options_.ranks ? ranks_[static_cast<std::size_t>(index)].get() : nullptr;
  }

  bool is_over() {
    if (!std::all_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank->is_complete(); })) {
      return false;
    }
    if (is_decided()) {
      return true;
    }
    try {
      if (!std::exchange(done_reported_, true)) {
        link_.report_done();
      }
      return link_.all_done();
    } catch (const StoreError&) {
      return false;  // a message will carry the reason
    }
  }

  // Sleeps until there is work to do.
  void wait() {
    const bool reads = output_.size() < kMaxWaiting;
    polled_.clear();
    polled_.push_back({link_.descriptor(), POLLIN, 0});
    polled_.push_back({signals_.descriptor(), POLLIN, 0});
    polled_.push_back({output_.next(), POLLOUT, 0});
    polled_.push_back({guard_.descriptor(), POLLIN, 0});
    bool all_complete = true;
    bool must_ask = false;
    for (const auto& rank : ranks_) {
      rank->add_to(polled_, reads);
      all_complete = all_complete && rank->is_complete();
      must_ask = must_ask || rank->must_be_asked() || (rank->has_ended() && !rank->is_complete());
    }
    Clock::time_point next = std::min(terminate_at_, kill_at_);
    for (const Suspect& suspect : suspects_) {
      next = std::min(next, suspect.due);
    }
    if (elastic_) {
      next = std::min(next, elastic_->next_look());
    }
    const Clock::time_point now = Clock::now();
    milliseconds timeout = all_complete ? kAttemptLook : must_ask ? milliseconds(5) : milliseconds(10'000);
    if (next < now + timeout) {
      timeout = std::max(milliseconds(0), std::chrono::ceil<milliseconds>(next - now));
    }
    ::poll(polled_.data(), polled_.size(), static_cast<int>(timeout.count()));
  }

  void take_signals() {
    while (const int number = signals_.take()) {
      if (number == SIGTSTP) {
        signal_all(SIGSTOP);
        std::raise(SIGSTOP);
        signal_all(SIGCONT);
      } else if (result_.outcome.signal != 0 && number == SIGINT) {
        signal_all(SIGKILL, "SIGKILL");
        kill_at_ = Clock::time_point::max();
      } else {
        if (number == SIGINT) {
          note("SIGINT went to all ranks; once more kills them");
        }
        signal_all(number);
        if (!is_decided()) {
          stop_by(number, "was stopped by " + signal_text(number));
        }
      }
    }
  }

  void take_messages() {
    for (const LinkMessage& message : link_.take()) {
      switch (message.kind) {
        case LinkMessage::Kind::verdict: {
          result_.is_final = result_.is_final || message.text.starts_with(kLauncherOfNode);
          const CommError error = verdict_error(message.text);
          fail(error.what(), error.details().rank, false, message.text);
          break;
        }
        case LinkMessage::Kind::lost_launcher:
          result_.is_final = true;
          fail(message.text, -1, true);
          break;
        case LinkMessage::Kind::lost_rank: {
          // A rank whose connection closed has probably ended, and its parent knows how.
          const milliseconds patience = message.lost.sign == LostRank::Sign::silent ? milliseconds(0)
                                        : local(message.lost.process.rank)          ? kForTheEnd
                                                                                    : kForItsLauncher;
          suspects_.push_back({message.lost.process.rank, describe(message.lost), Clock::now() + patience});
          break;
        }
        case LinkMessage::Kind::generation_verdict: take_generation_verdict(message);
      }
    }
  }

  void take_ended() {
    const LocalRank* first = nullptr;
    const auto place = [](int status) { return signal_obeyed(status) != 0 ? 0 : WIFSIGNALED(status) ? 1 : 2; };
    for (const auto& rank : ranks_) {
      // A rank that was asked to end, or killed, did not die because of another one found dead at the same time.
      const bool ends = rank->take_end(output_);
      const std::string* killed = ends && elastic_ ? elastic_->why_killed(rank->rank()) : nullptr;
      if (ends && (rank->status() != 0 || killed != nullptr)) {
        if (elastic_ && (signal_obeyed(rank->status()) == 0 || killed != nullptr || elastic_->is_done())) {
          lose(rank->rank(), killed != nullptr ? std::string(*killed) : how_it_failed(*rank),
               killed != nullptr || is_from_outside(rank->status()));
        } else if (first == nullptr || place(rank->status()) < place(first->status())) {
          first = rank.get();
        }
      }
    }
    if (first != nullptr) {
      take_messages();  // a verdict that ended the rank arrived before its end
      if (const int signal = signal_obeyed(first->status()); signal != 0 && !is_decided()) {
        note(fmt::format("{} {}: it was asked to stop, and so is the job", first->name(), end_text(first->status())));
        stop_by(signal, fmt::format("stops the job, because {} obeyed {}", first->name(), signal_text(signal)));
        // The others may have got the signal, too, and be saving.
        terminate_at_ = Clock::now() + options_.kill_timeout / 2;
        return;
      }
      fail(how_it_failed(*first), first->rank(), is_from_outside(first->status()));
    }
  }

  static std::string how_it_failed(const LocalRank& rank) {
    return fmt::format("{} {}{}{}", rank.name(), end_text(rank.status()), rank.progress(),
                       is_from_outside(rank.status()) ? "" : last_words(rank));
  }

  void judge_suspects() {
    const Clock::time_point now = Clock::now();
    const auto first_due = std::stable_partition(suspects_.begin(), suspects_.end(),
                                                 [&](const Suspect& suspect) { return now < suspect.due; });
    const std::vector<Suspect> due(first_due, suspects_.end());
    suspects_.erase(first_due, suspects_.end());
    for (const Suspect& suspect : due) {
      const LocalRank* rank = local(suspect.rank);
      if (rank == nullptr || !rank->has_ended()) {
        lose(suspect.rank, suspect.why, true);
      } else if (rank->status() == 0) {  // a rank that finished its job would have said goodbye
        lose(suspect.rank, fmt::format("{} {} in the middle of its job", rank->name(), end_text(rank->status())),
             false);
      }
    }
  }

  // ---- ranks that are lost while the others go on ----

  // A member of the current generation has told the others of a failure.
  void take_generation_verdict(const LinkMessage& message) {
    if (message.generation != elastic_->generation() || !result_.outcome.cause.empty()) {
      return;
    }
    if (message.text == kMeetAnew) {
      elastic_->take_in_newcomers();
      return;
    }
    const CommError error = verdict_error(message.text);
    const int rank = error.details().rank;
    const bool is_of_one = error.details().fault == CommFault::peer_lost || error.details().fault == CommFault::aborted;
    if (is_of_one && local(rank) != nullptr) {
      suspects_.push_back({rank, error.what(), Clock::now() + kForTheEnd, true});  // its process is about to end
    } else {
      fail(error.what(), rank, false, message.text);
    }
  }

  // The job fails, unless it is elastic and enough ranks are left.
  void lose(int rank, const std::string& cause, bool by_chance) {
    if (!elastic_) {
      fail(cause, rank, by_chance);
    } else if (result_.outcome.cause.empty()) {  // also while the others save, because somebody stops the job
      elastic_->lose(rank, cause, by_chance);
    }
  }

  void look_after_elastic_job() {
    if (!elastic_ || !result_.outcome.cause.empty()) {
      return;
    }
    if (!is_decided() && elastic_->becomes_done()) {
      signal_all(SIGTERM, "SIGTERM");
      kill_at_ = Clock::now() + options_.kill_timeout;
    }
    elastic_->look_after(is_decided());
  }

  void press_on() {
    const Clock::time_point now = Clock::now();
    if (now >= terminate_at_) {
      signal_all(SIGTERM, "SIGTERM");
      signal_all(SIGCONT);  // a stopped process cannot end
      terminate_at_ = Clock::time_point::max();
    }
    if (now >= kill_at_) {
      signal_all(SIGKILL, "SIGKILL");
      kill_at_ = Clock::time_point::max();
    }
  }

  void keep_guarded() {
    try {
      if (const pid_t ended = guard_.replace_if_ended(); ended != 0) {
        note(
            fmt::format("the process that ends the ranks if this launcher is killed (pid {}) was killed; there is a "
                        "new one",
                        ended));
      }
    } catch (const IoError& error) {
      note(fmt::format("nothing ends the ranks any more if this launcher is killed: {}", error.what()));
    }
  }

  // Like a program that writes into a pipe whose reader has ended.
  void stop_without_reader() {
    if (output_.error() == EPIPE && !is_decided()) {
      signal_all(SIGTERM, "SIGTERM");
      stop_by(SIGPIPE, "was stopped by " + signal_text(SIGPIPE));
    }
  }

  // The job ends because somebody wants that, so no attempt follows.
  void stop_by(int signal, const std::string& what) {
    result_.outcome.signal = signal;
    link_.say_stopped(what);
    kill_at_ = Clock::now() + options_.kill_timeout;
  }

  void note(const std::string& text) {
    if (options_.narrate) {
      output_.push(STDERR_FILENO, fmt::format("tandem run: {}\n", text));
    }
  }

  void fail(const std::string& cause, int rank, bool by_chance, const std::string& verdict = {}) {
    if (is_decided()) {
      return;
    }
    result_.outcome.cause = cause;
    result_.outcome.rank = rank;
    result_.by_chance = by_chance;
    result_.after = std::chrono::duration<double>(Clock::now() - start_).count();
    publish(verdict.empty() ? cause : verdict);
    terminate_at_ = Clock::now() + kBeforeSigterm;
    kill_at_ = std::min(kill_at_, terminate_at_ + options_.kill_timeout);
  }

  void publish(const std::string& verdict) {
    link_.publish(verdict);
    if (elastic_) {
      elastic_->publish(verdict);
    }
  }

  void signal_all(int number, const char* name = nullptr) {
    for (const auto& rank : ranks_) {
      rank->signal(number, name);
    }
  }

  void conclude() {
    LaunchOutcome& outcome = result_.outcome;
    const RankEnd* first = nullptr;  // the first rank that failed by itself
    for (const auto& rank : ranks_) {
      result_.ends.push_back(rank->end(start_));
    }
    for (const RankEnd& end : result_.ends) {
      if (end.status != 0 && end.asked.empty() && (!elastic_ || elastic_->needs(end.rank)) &&
          (first == nullptr || end.after < first->after)) {
        first = &end;
      }
    }
    if (const LocalRank* culprit = local(outcome.rank); culprit != nullptr) {
      result_.last_lines = culprit->last_lines();
      result_.log = culprit->log();
      const RankEnd& end = result_.ends[static_cast<std::size_t>(outcome.rank - options_.node * options_.ranks)];
      first = end.status != 0 && end.asked.empty() ? &end : first;
      if (rank_in(outcome.cause) < 0) {  // another rank reported the cause and knew neither number nor status
        const std::string words = is_from_outside(end.status) ? "" : last_words(*culprit);
        const std::string error = words.starts_with(kErrorMark) ? words.substr(kErrorMark.size()) : words;
        const bool is_known =
            words.find(outcome.cause) != std::string::npos || outcome.cause.find(error) != std::string::npos;
        outcome.cause += fmt::format("; {} {}{}", culprit->name(), how_it_ended(end), is_known ? "" : words);
      }
    }
    outcome.exit_code = first != nullptr ? exit_code_of(first->status) : outcome.cause.empty() ? 0 : 1;
    if (outcome.signal != 0 && first == nullptr) {
      const bool was_killed =
          std::any_of(result_.ends.begin(), result_.ends.end(), [](const RankEnd& e) { return e.status; });
      outcome.exit_code = outcome.signal == SIGPIPE ? 128 + SIGPIPE : was_killed ? 128 + SIGKILL : 0;
    }
  }

  // The first cause stays, and an end after a signal from outside is not a failure.
  bool is_decided() const { return !result_.outcome.cause.empty() || result_.outcome.signal != 0; }

  const LaunchOptions& options_;
  const std::string& file_;
  JobLink& link_;
  const SignalCatcher& signals_;
  GroupGuard& guard_;
  OutputQueue& output_;
  std::vector<std::unique_ptr<LocalRank>> ranks_;
  std::optional<ElasticJob> elastic_;
  Clock::time_point start_ = Clock::now();
  std::vector<pollfd> polled_;
  std::vector<Suspect> suspects_;
  AttemptResult result_;
  bool done_reported_ = false;
  Clock::time_point terminate_at_ = Clock::time_point::max();
  Clock::time_point kill_at_ = Clock::time_point::max();
};

}  // namespace

AttemptResult run_ranks(const LaunchOptions& options, const std::string& file, JobLink& link,
                        const SignalCatcher& signals, GroupGuard& guard, OutputQueue& output) {
  return Attempt(options, file, link, signals, guard, output).run();
}

}  // namespace tandem::inline v0::parallel
