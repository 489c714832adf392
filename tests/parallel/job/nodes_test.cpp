#include <csignal>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/parallel/rendezvous/job_token.h>

#include "parallel/job/launched.h"
#include "support/reserved_port.h"

// Launchers of several nodes, all on this host.

namespace tandem::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Nodes : public testing::Test {
 protected:
  std::unique_ptr<Launched> node(int number, std::vector<std::string> program, std::vector<std::string> flags = {},
                                 int ranks = 2) {
    std::vector<std::string> arguments{"-n",          std::to_string(ranks), "--nnodes", "2", "--rdzv", place_,
                                       "--node-rank", std::to_string(number)};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    arguments.insert(arguments.end(), program.begin(), program.end());
    return std::make_unique<Launched>(arguments, false, std::vector<std::string>{"TANDEM_JOB_TOKEN=" + token_});
  }

  TempDir folder_;
  ReservedPort port_;
  std::string place_ = fmt::format("127.0.0.1:{}", port_.number());
  std::string token_ = parallel::JobToken::generate().hex();
};

TEST_F(Nodes, RanksOfAllMeet) {
  const auto second = node(1, {RANK_PROGRAM, "meet", "both"});  // may arrive first
  std::this_thread::sleep_for(200ms);
  const auto first = node(0, {RANK_PROGRAM, "meet", "both"});
  const Outcome outcomes[] = {first->wait(), second->wait()};
  EXPECT_EQ(outcomes[0].exit_code, 0) << outcomes[0].err;
  EXPECT_EQ(outcomes[1].exit_code, 0) << outcomes[1].err;
  EXPECT_THAT(outcomes[0].out, HasSubstr("[1] met 4 ranks of both\n"));
  EXPECT_THAT(outcomes[1].out, HasSubstr("[3] met 4 ranks of both\n"));
}

TEST_F(Nodes, ASignalEndsTheWaitForAServerThatSaysNothing) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(port_.number()), .sin_addr = {htonl(INADDR_LOOPBACK)}};
  const int yes = 1;
  ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  ASSERT_EQ(::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(listener, 1), 0);
  const auto launcher = node(1, {RANK_PROGRAM, "meet", "both"});
  const int connection = ::accept(listener, nullptr, nullptr);
  launcher->signal(SIGTERM);
  const double took = seconds_of([&] { EXPECT_EQ(launcher->wait().exit_code, 128 + SIGTERM); });
  EXPECT_LT(took, 2.0);
  ::close(connection);
  ::close(listener);
}

TEST_F(Nodes, ADeathOnOneIsHeardOnTheOther) {
  const auto first = node(0, {RANK_PROGRAM, "wait", folder_.path()});
  const auto second = node(1, {RANK_PROGRAM, "wait", folder_.path()});
  for (int rank = 0; rank < 3; ++rank) {
    pid_in(folder_.file(fmt::format("pid{}", rank)));
  }
  const pid_t victim = pid_in(folder_.file("pid3"));
  const std::string cause = fmt::format("rank 3 (pid {} on {}) was killed by signal 9 (SIGKILL)", victim, host_name());
  ::kill(victim, SIGKILL);
  EXPECT_TRUE(eventually([&] { return first->err().find("[0] heard: " + cause) != std::string::npos; }, 1s));
  const Outcome outcomes[] = {first->wait(), second->wait()};
  EXPECT_EQ(outcomes[0].exit_code, 7);
  EXPECT_EQ(outcomes[1].exit_code, 128 + 9);
  EXPECT_THAT(outcomes[1].err, HasSubstr("[2] heard: " + cause));
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(lines_of(outcome.err).back(), "tandem run: " + cause);
  }
}

TEST_F(Nodes, WhoStopsOneStopsAll) {
  const std::vector<std::string> restarts{"--max-restarts", "5"};
  const auto first = node(0, {RANK_PROGRAM, "wait", folder_.path()}, restarts);
  const auto second = node(1, {RANK_PROGRAM, "wait", folder_.path()}, restarts);
  for (int rank = 0; rank < 4; ++rank) {
    pid_in(folder_.file(fmt::format("pid{}", rank)));
  }
  second->signal(SIGINT);
  EXPECT_EQ(second->wait(20s).exit_code, 128 + SIGINT);
  const Outcome outcome = first->wait(20s);
  EXPECT_EQ(outcome.exit_code, 7);
  EXPECT_EQ(lines_of(outcome.err).back(), "tandem run: the launcher of node 1 was stopped by signal 2 (SIGINT)");
}

// Ranks that are not tandem programs have no connection to the store.
TEST_F(Nodes, TheEndOfALauncherEndsTheOther) {
  for (const int victim : {0, 1}) {
    const std::string script = fmt::format("echo > {}/$RANK.{}; sleep 30", folder_.path(), victim);
    const auto first = node(0, {"sh", "-c", script});
    const auto second = node(1, {"sh", "-c", script});
    for (int rank = 0; rank < 4; ++rank) {
      pid_in(folder_.file(fmt::format("{}.{}", rank, victim)));
    }
    (victim == 0 ? first : second)->signal(SIGKILL);
    const Outcome outcome = (victim == 0 ? second : first)->wait(20s);
    EXPECT_EQ(outcome.exit_code, 1);
    // The error comes at once, not after the launcher's silence.
    EXPECT_THAT(lines_of(outcome.err).back(),
                victim == 0
                    ? AllOf(HasSubstr("the rendezvous server at 127.0.0.1:"), HasSubstr("closed the connection"))
                    : AllOf(HasSubstr("tandem run: the launcher of node 1 (pid "),
                            HasSubstr("its connection closed without a goodbye")));
  }
}

TEST_F(Nodes, AllStartAgainTogether) {
  const std::string pid = folder_.file("pid");
  const std::vector<std::string> program{
      "sh", "-c",
      fmt::format("echo $$ > {0}$RANK; {1} meet x || exit 9; echo attempt $TORCHELASTIC_RESTART_COUNT; "
                  "if [ $TORCHELASTIC_RESTART_COUNT$RANK = 03 ]; then {2} {3} {4} kill -KILL $$; fi; exit 0",
                  pid, RANK_PROGRAM, until_noticed_end(pid + "0"), until_noticed_end(pid + "1"),
                  until_noticed_end(pid + "2"))};  // the ranks would hear of it while they still meet
  const auto first = node(0, program, {"--max-restarts", "2"});
  const auto second = node(1, program, {"--max-restarts", "2"});
  const Outcome outcomes[] = {first->wait(), second->wait()};
  EXPECT_EQ(outcomes[0].exit_code, 0) << outcomes[0].err;
  EXPECT_EQ(outcomes[1].exit_code, 0) << outcomes[1].err;
  EXPECT_THAT(outcomes[0].out, HasSubstr("[0] attempt 1\n"));
  EXPECT_THAT(outcomes[1].out, HasSubstr("[3] attempt 1\n"));
}

// The store of the next attempt has taken over the address of the old one by then.
TEST_F(Nodes, ARankThatOutlivesItsAttemptIsNoneOfTheNext) {
  const std::vector<std::string> program{
      "sh", "-c",
      fmt::format("case $TORCHELASTIC_RESTART_COUNT$RANK in 00) {} exit 3;; 03) trap '' TERM; echo > {}; sleep 3;; "
                  "esac; exec {} meet x",
                  until_written(folder_.file("late")), folder_.file("late"), RANK_PROGRAM)};
  const std::vector<std::string> flags{"--max-restarts", "1", "--kill-timeout", "6"};
  const auto first = node(0, program, flags);
  const auto second = node(1, program, flags);
  const Outcome outcomes[] = {first->wait(), second->wait()};
  EXPECT_EQ(outcomes[0].exit_code, 0) << outcomes[0].err;
  EXPECT_EQ(outcomes[1].exit_code, 0) << outcomes[1].err;
  EXPECT_THAT(outcomes[1].out, HasSubstr("[3] met 4 ranks of x\n"));
}

TEST_F(Nodes, MustWantTheSame) {
  const auto first = node(0, {"true"}, {}, 2);
  const auto second = node(1, {"true"}, {}, 3);
  for (Launched* launched : {second.get(), first.get()}) {
    const Outcome outcome = launched->wait(20s);
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_THAT(lines_of(outcome.err).back(),
                "error: node 1 was started with --nnodes 2 --nproc-per-node 3, and node 0 with --nnodes 2 "
                "--nproc-per-node 2: the launchers of a job need the same numbers");
  }
}

TEST_F(Nodes, NeedAToken) {
  const Outcome outcome = run_ranks({"--nnodes", "2", "--rdzv", place_, "true"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err,
              HasSubstr("2 nodes need a token that all launchers share [TDM-E609]: export TANDEM_JOB_TOKEN=$(openssl"));
}

TEST_F(Nodes, WhoWaitsForTheOthersSaysSoAndCanBeStopped) {
  const auto first = node(0, {"true"});
  EXPECT_TRUE(eventually([&] {
    return first->err().find(fmt::format("node 0 waits for the others at {}: 1 of 2 launchers are there", place_)) !=
           std::string::npos;
  }));
  first->signal(SIGTSTP);
  EXPECT_TRUE(eventually([&] { return state_of(first->pid()) == 'T'; }));
  first->signal(SIGCONT);
  EXPECT_TRUE(eventually([&] { return state_of(first->pid()) != 'T'; }));
  first->signal(SIGINT);
  EXPECT_EQ(first->wait(20s).exit_code, 128 + SIGINT);
}

}  // namespace
}  // namespace tandem::test
