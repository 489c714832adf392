#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include <unistd.h>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "support/message.h"

using namespace tandem;
using namespace tandem::test;
using namespace std::chrono_literals;
using parallel::InitOptions;
using parallel::ProcessGroupGuard;

namespace {

TEST(ProcessGroupGuard, IsRankZeroOfOneWithoutALauncher) {
  const ProcessGroupGuard guard;
  EXPECT_EQ(parallel::get_rank(), 0);
  EXPECT_EQ(parallel::get_world_size(), 1);
  const Tensor x = tensor({1.0F, 2.0F});
  parallel::default_group().all_reduce(x);
  EXPECT_EQ(x.to_vector<float>(), (std::vector{1.0F, 2.0F}));
}

TEST(ProcessGroupGuard, DocsExample) {
  const parallel::ProcessGroupGuard guard;  // who we are: from tandem run, torchrun, mpirun or srun
  const Tensor x = full({2}, parallel::get_rank() + 1.0);
  parallel::default_group().all_reduce(x);
  EXPECT_EQ(x.to_vector<float>(), (std::vector{1.0F, 1.0F}));
}

TEST(ProcessGroupGuard, IsAllThreadsRank) {
  const ProcessGroupGuard guard;
  std::thread([] { EXPECT_EQ(parallel::get_rank(), 0); }).join();
}

TEST(ProcessGroupGuard, EndsWithItsScope) {
  {
    const ProcessGroupGuard guard;
  }
  EXPECT_FALSE(parallel::is_initialized());
  const ProcessGroupGuard again;
  EXPECT_TRUE(parallel::is_initialized());
}

TEST(ProcessGroupGuard, LeavesTheRandomNumbersOfRankZeroAsTheyWere) {
  manual_seed(3);
  const float expected = rand({1}).item<float>();
  manual_seed(3);
  const ProcessGroupGuard guard;
  EXPECT_EQ(rand({1}).item<float>(), expected);
}

TEST(ProcessGroupGuard, IsThereOnce) {
  const ProcessGroupGuard guard;
  EXPECT_EQ(message_of<ConfigError>([] { ProcessGroupGuard(); }),
            "init_process_group: this process is a rank already; one process is one rank of one job, and ranks of "
            "spawn() have their group");
}

TEST(ProcessGroupGuard, IsNotForRanksOfSpawn) {
  parallel::spawn(1, [](int) {
    EXPECT_EQ(message_of<ConfigError>([] { ProcessGroupGuard(); }),
              "init_process_group: this thread is a rank already; one process is one rank of one job, and ranks of "
              "spawn() have their group");
  });
}

// A loopback address that no other process of this machine uses, so that no other process listens there.
std::string own_address(int port) {
  return fmt::format("127.{}.{}.1:{}", 1 + ::getpid() % 250, 1 + ::getpid() / 250 % 250, port);
}

TEST(ProcessGroupGuard, NamesTheRanksThatDidNotCome) {
  try {
    ProcessGroupGuard({.init_method = "tcp://" + own_address(29614), .rank = 0, .world_size = 3, .init_timeout = 2s});
    FAIL() << "nothing was thrown";
  } catch (const CommError& error) {
    EXPECT_EQ(error.details().fault, CommFault::init);
    EXPECT_EQ(error.details().rank, 1);
    EXPECT_STREQ(error.what(),
                 "init_process_group: 2 of 3 ranks did not come in time: 1, 2. Was the job started on all hosts, with "
                 "the same number of ranks, address and port? If they only need longer to start, raise "
                 "InitOptions::init_timeout");
  }
  EXPECT_FALSE(parallel::is_initialized());
}

TEST(ProcessGroupGuard, SaysThatThereIsNoStore) {
  try {
    ProcessGroupGuard(
        {.init_method = "tcp://" + own_address(29615), .rank = 1, .world_size = 2, .init_timeout = 200ms});
    FAIL() << "nothing was thrown";
  } catch (const CommError& error) {
    EXPECT_EQ(error.details().fault, CommFault::init);
    EXPECT_NE(std::string(error.what()).find(own_address(29615)), std::string::npos) << error.what();
  }
}

TEST(ProcessGroupGuard, RefusesTimesThatMeanNothing) {
  EXPECT_EQ(message_of<ConfigError>([] { ProcessGroupGuard({.init_timeout = std::chrono::milliseconds::max()}); }),
            "init_process_group: init_timeout is 9223372036854775807 ms; expected 1 ms to 12 hours");
  EXPECT_EQ(
      message_of<ConfigError>([] { ProcessGroupGuard({.heartbeat_interval = 0ms}); }),
      "init_process_group: heartbeat_interval is 0 ms and heartbeat_limit 10000 ms; expected 1 ms or more, and two "
      "intervals to 24 hours");
}

TEST(ProcessGroupGuard, TakesTheLongestTimeoutForAYear) {
  const ProcessGroupGuard guard({.timeout = std::chrono::milliseconds::max()});
  EXPECT_EQ(guard.group().timeout(), std::chrono::hours(24 * 365));
  guard.group().barrier();
}

TEST(ProcessGroupGuard, KnowsItsBackends) {
  EXPECT_EQ(message_of<ConfigError>([] { ProcessGroupGuard({.backend = "mpi"}); }),
            "init_process_group: no backend is called \"mpi\"; expected \"gloo\", \"nccl\", or none for the best");
}

TEST(ProcessGroupGuard, WithoutAScopeLastsUntilDestroy) {
  parallel::init_process_group();
  EXPECT_EQ(parallel::get_world_size(), 1);
  parallel::destroy_process_group();
  EXPECT_FALSE(parallel::is_initialized());
  EXPECT_EQ(message_of<ConfigError>([] { parallel::destroy_process_group(); }),
            "destroy_process_group: there is none; init_process_group() makes it");
}

}  // namespace
