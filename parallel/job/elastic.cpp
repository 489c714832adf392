#include <tandem/parallel/job/elastic.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/check.h>
#include <tandem/core/failpoint.h>
#include <tandem/parallel/comm/comm_queue.h>
#include <tandem/parallel/comm/elastic_rank.h>
#include <tandem/parallel/comm/faults.h>
#include <tandem/parallel/job/joined_group.h>
#include <tandem/parallel/job/membership.h>
#include <tandem/parallel/job/spawn_check.h>
#include <tandem/parallel/rendezvous/environment.h>
#include <tandem/parallel/rendezvous/tcp_store.h>
#include <tandem/tensor/generator.h>

// A rank of an elastic job, from one generation to the next (membership.h has the protocol):
//
// 1. The rank connects to the job's store, by which the launcher notices its death.
// 2. It waits for the note of its next generation, meets the others in that generation's store, and runs the function.
// 3. A loss in the generation reaches the function as a CommError. Back to 2.

namespace tandem::inline v0::parallel {

namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// The launcher notices a death within its heartbeat limit, and all else at once.
constexpr milliseconds kForTheLauncher{30'000};

class LaunchedRank final : public ElasticRank {
 public:
  LaunchedRank(const InitOptions& options, int first_generation)
      : options_(options), world_(read_world()), lines_(options.on_waiting), next_(first_generation) {
    check_options(options);
    const std::optional<JobToken> token = options.token ? options.token : JobToken::from_environment();
    check<ConfigError>(world_.store_is_hosted && token.has_value() && next_ >= 0,
                       "run_elastic: {} is set, and {}; start the program with tandem run --elastic, which sets all "
                       "variables",
                       kElasticVariable, token ? "no launcher hosts the store" : "there is no token");
    token_ = *token;
    store_ = std::make_unique<TcpStore>(TcpStoreOptions{.host = world_.address,
                                                        .port = world_.port,
                                                        .token = token_,
                                                        .rank = world_.rank,
                                                        .connect_timeout = options.init_timeout,
                                                        .heartbeat_interval = options.heartbeat_interval,
                                                        .heartbeat_limit = options.heartbeat_limit});
    seed_ = current_generator().seed();
    offset_ = current_generator().offset();
    if (next_ > 0) {
      store_->add(kNewcomers, 1);
    }
  }

  void run(core::FunctionRef<void(ProcessGroup&)> body) {
    for (std::optional<CommError> cause;; ++next_) {
      note_ = read_note(cause);
      const int rank = note_.rank_of(world_.rank);
      if (rank >= 0) {
        was_member_ = true;
        if (run_generation(rank, body, cause)) {
          return;
        }
      } else if (was_member_) {
        throw CommError(fmt::format("rank {} was taken for lost, and the others have gone on without it", world_.rank),
                        {.fault = CommFault::peer_lost, .rank = world_.rank});
      }
    }
  }

  void prepare_to_meet() override {
    group_->keep_quiet();
    if (group_->group().rank() == 0) {
      group_->announce(kMeetAnew);
    }
  }

  bool newcomers_wait() override {
    const std::string counted = store_->try_get(kNewcomers).value_or("0");
    return std::strtoll(counted.c_str(), nullptr, 10) > note_.newcomers;
  }

 private:
  // The note of the newest generation from `next_` on. A member of the generation before knows that it comes; a
  // newcomer may wait for long.
  GenerationNote read_note(const std::optional<CommError>& cause) {
    const Clock::time_point deadline = Clock::now() + kForTheLauncher;
    const auto goes_on = [&] {
      if (!was_member_ && next_ > 0) {
        lines_.offer([&] { return fmt::format("rank {} waits for the end of the others' epoch", world_.rank); });
      }
      return true;
    };
    for (;;) {
      if (store_->get_while(GenerationNote::key(next_), kForTheLauncher, goes_on)) {
        const std::string newest = store_->try_get(kNewestGeneration).value_or("0");
        next_ = std::max(next_, std::atoi(newest.c_str()));
        return GenerationNote::parse(store_->get(GenerationNote::key(next_)));
      }
      if (was_member_ && Clock::now() >= deadline) {
        throw cause.value_or(
            CommError("run_elastic: the launcher does not say who goes on", {.fault = CommFault::timeout}));
      }
    }
  }

  // Whether the function has ended. False: the ranks meet anew, because of `cause` if there is one.
  bool run_generation(int rank, core::FunctionRef<void(ProcessGroup&)> body, std::optional<CommError>& cause) {
    WorldInfo world = world_;
    world.rank = world.local_rank = rank;
    world.world_size = world.local_world_size = static_cast<int>(note_.members.size());
    world.port = note_.port;
    begin(next_);
    // Each call of the function draws what its first one has drawn.
    detail::seed_as_rank(current_generator(), seed_, offset_, world_.rank);
    try {
      InitOptions options = options_;
      if (next_ > 0) {  // a member may be in a long step of the generation before
        options.init_timeout = std::max(options.init_timeout, options.timeout);
      }
      JoinedGroup joined(options, {.method = {InitMethod::Kind::tcp, world.address, world.port, ""},
                                   .world = world,
                                   .token = token_of_generation(*token_, next_),
                                   .numbers = note_.members});
      const RankContext context{&joined.group(), this};
      set_process_rank(&context);
      const auto leave = [](const RankContext*) { set_process_rank(nullptr); };
      const std::unique_ptr<const RankContext, decltype(leave)> scope(&context, leave);
      group_ = &joined;
      try {
        body(joined.group());
        joined.group().wait_all();
        if (!joined.group().queue()->is_dead()) {
          store_->set(done_key(world_.rank), std::to_string(next_));
          core::failpoint("leave");
          return true;
        }
        joined.group().barrier();  // throws: the function has caught the error of a loss, and did not come to its end
      } catch (const RanksMeetAnew&) {
        cause.reset();
      } catch (const CommError& error) {
        // The group is left below, where no exception is in flight: its end must not look like a failure of this rank.
        check_goes_on(error);
        cause = error;
        detail::forget_failures(joined.group());
      }
    } catch (const StoreError& error) {
      cause = error_of(error);
      check_goes_on(*cause);
    } catch (const CommError& error) {  // one was lost while they met
      check_goes_on(error);
      cause = error;
    }
    return false;
  }

  void check_goes_on(const CommError& error) const {
    if (!is_survivable(error, world_.rank)) {
      throw CommError(error);
    }
  }

  const InitOptions& options_;
  WorldInfo world_;  // as the launcher sees it
  WaitingLines lines_;
  int next_;  // generation
  std::optional<JobToken> token_;
  std::unique_ptr<TcpStore> store_;  // the job's
  std::uint64_t seed_ = 0;           // of the random numbers before the first call
  std::uint64_t offset_ = 0;
  GenerationNote note_;           // of the current generation ...
  JoinedGroup* group_ = nullptr;  // ... and its group
  bool was_member_ = false;
};

}  // namespace

void detail::run_elastic(core::FunctionRef<void(ProcessGroup&)> body, const InitOptions& options) {
  const std::optional<std::string> first = process_environment(kElasticVariable);
  if (!first) {
    const ProcessGroupGuard guard(options);
    body(guard.group());
    guard.group().wait_all();
    return;
  }
  check<ConfigError>(!is_initialized(), "run_elastic: this process is a rank already");
  static std::atomic<bool> has_run{false};
  check<ConfigError>(!has_run.exchange(true),
                     "run_elastic: this process has called it before, and under --elastic a rank that has ended its "
                     "function has left the job; put everything into one function");
  try {
    LaunchedRank rank(options, std::atoi(first->c_str()));
    rank.run(body);
  } catch (const StoreError& error) {
    throw error_of(error);
  }
}

}  // namespace tandem::inline v0::parallel
