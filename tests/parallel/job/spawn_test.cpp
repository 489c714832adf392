#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/core/thread_pool.h>
#include <tandem/tandem.h>

#include "parallel/ranks.h"
#include "support/thread_count.h"

namespace tandem::parallel {
namespace {

using test::message_of;

TEST(Spawn, RunsTheFunctionAsEachRankAtOnce) {
  std::atomic<int> here{0};
  std::vector<std::thread::id> threads(3);
  spawn(3, [&](int rank) {
    threads[static_cast<std::size_t>(rank)] = std::this_thread::get_id();
    EXPECT_EQ(get_rank(), rank);
    EXPECT_EQ(get_world_size(), 3);
    for (++here; here < 3;) {
      std::this_thread::yield();
    }
  });
  EXPECT_EQ(std::set<std::thread::id>(threads.begin(), threads.end()).size(), 3U);
}

TEST(Spawn, GivesEachRankADeviceOfItsOwn) {
  spawn(3, [](ProcessGroup& group) { EXPECT_EQ(zeros({1}).device(), Device(DeviceType::cpu, group.rank())); });
  spawn(2, [](int) { EXPECT_EQ(zeros({1}).device(), Device("cpu:0")); }, {.devices = {"cpu:0", "cpu:0"}});
  EXPECT_EQ(message_of<ConfigError>([] { spawn(2, [](int) {}, {.devices = {"cpu:0"}}); }),
            "spawn: 1 devices for 2 ranks; expected one each, or none");
  EXPECT_THROW(spawn(cpu_device_count() + 1, [](int) {}), DeviceError);
}

TEST(Spawn, IsWhatThreadsOfARankSee) {
  EXPECT_FALSE(is_initialized());
  const test::ThreadCount threads(4);
  spawn(2, [](int rank) {
    EXPECT_TRUE(is_initialized());
    std::atomic<int> wrong{0};
    core::ThreadPool::instance().for_each_chunk(64, [&](std::int64_t) { wrong += get_rank() == rank ? 0 : 1; });
    core::ThreadPool::instance().for_each_lane(4, [&](std::int64_t) { wrong += get_rank() == rank ? 0 : 1; });
    Tensor w = ones({4});
    w.requires_grad_();
    w.register_hook([&](const Tensor&) {
      wrong += get_rank() == rank ? 0 : 1;
      return Tensor();
    });
    w.sum().backward();
    EXPECT_EQ(wrong, 0);
    std::thread([] { EXPECT_FALSE(is_initialized()); }).join();  // a user's own thread belongs to no rank
  });
  EXPECT_EQ(message_of<ConfigError>([] { get_rank(); }),
            "default_group: this thread belongs to no rank. Join the job of a launcher with "
            "parallel::ProcessGroupGuard, or start ranks with parallel::spawn(n, fn), which runs fn as each of them");
}

// Each sample is the number of the rank that loads it.
struct RankSamples : data::Dataset {
  std::int64_t size() const override { return 12; }
  data::Example get(std::int64_t) const override {
    const Tensor rank = full({1}, get_rank());
    return {rank, rank};
  }
};

TEST(Spawn, IsWhatTheLoadersThreadsSee) {
  spawn(2, [](int rank) {
    const RankSamples samples;
    data::DataLoader loader(samples, {.batch_size = 3, .num_workers = 2});
    for (const auto& [x, y] : loader) {
      EXPECT_EQ(x.to_vector<std::int64_t>(), std::vector<std::int64_t>(3, rank));
    }
  });
}

TEST(Spawn, CarriesGradMode) {
  const NoGradGuard no_grad;
  spawn(2, [](int) { EXPECT_FALSE(is_grad_enabled()); });
}

TEST(Spawn, DrawsIndependentNumbersTheSameInEveryRun) {
  const auto draw = [] {
    std::vector<std::vector<float>> drawn(3);
    spawn(3, [&](int rank) { drawn[static_cast<std::size_t>(rank)] = rand({6}).to_vector<float>(); });
    return drawn;
  };
  manual_seed(3);
  const auto first = draw();
  const float after = rand({1}).item<float>();
  EXPECT_NE(first[0], first[1]);
  EXPECT_NE(first[1], first[2]);
  manual_seed(3);
  EXPECT_EQ(draw(), first);
  EXPECT_NE(draw(), first);  // later draws differ
  manual_seed(3);
  EXPECT_EQ(rand({6}).to_vector<float>(), first[0]);  // rank 0's are the caller's
  EXPECT_EQ(rand({1}).item<float>(), after);
  spawn(2, [&](int) {
    manual_seed(3);
    EXPECT_EQ(rand({6}).to_vector<float>(), first[0]);
  });
}

TEST(Spawn, RethrowsTheLowestRankThatFailedByItself) {
  const auto body = [](ProcessGroup& group) {
    if (group.rank() >= 2) {
      throw ValueError("its own " + std::to_string(group.rank()));
    }
    group.barrier();
  };
  EXPECT_EQ(message_of<ValueError>([&] { spawn(4, body); }), "its own 2\n  in rank 2 of 4");
  try {
    spawn(2, [](int rank) {
      if (rank == 1) {
        throw std::out_of_range("not tandem's");
      }
      default_group().barrier();
    });
    FAIL();
  } catch (const std::out_of_range& error) {
    EXPECT_STREQ(error.what(), "not tandem's\n  in rank 1 of 2");
  }
  struct OfTheProgram : std::runtime_error {
    using std::runtime_error::runtime_error;
  };
  try {
    spawn(2, [](int rank) {
      if (rank == 1) {
        throw OfTheProgram("its own");
      }
    });
    FAIL();
  } catch (const OfTheProgram& error) {
    EXPECT_STREQ(error.what(), "its own");
  }
  EXPECT_EQ(
      message_of<CommError>([] { spawn(2, [](int rank) { rank == 0 ? default_group().barrier().wait() : void(); }); }),
      "barrier (#0): rank 1 is lost: its function ended\n  in rank 0 of 2");
}

TEST(Spawn, RefusesWhatWouldBeRanksOfRanks) {
  EXPECT_EQ(message_of<ConfigError>([] { spawn(0, [](int) {}); }), "spawn: 0 ranks; expected at least 1");
  EXPECT_EQ(message_of<ConfigError>([] { spawn(1, [](int) { spawn(1, [](int) {}); }); }),
            "spawn: called within a rank; ranks have no ranks of their own\n  in rank 0 of 1");
  ASSERT_EQ(setenv("RANK", "3", 1), 0);
  EXPECT_EQ(
      message_of<ConfigError>([] { spawn(2, [](int) {}); }),
      "spawn: a launcher has already made this process rank 3 (RANK is set), and 2 ranks in each of its processes "
      "are not meant: either start this program without the launcher, or call the function without spawn()");
  unsetenv("RANK");
}

class Launchers : public ::testing::Test {
 protected:
  ~Launchers() override {
    for (const std::string& name : set_) {
      unsetenv(name.c_str());
    }
  }
  void set(const std::string& name, const char* value) {
    ASSERT_EQ(setenv(name.c_str(), value, 1), 0);
    set_.push_back(name);
  }

 private:
  std::vector<std::string> set_;
};

TEST_F(Launchers, OfOtherKindsAreNoPlaceForSpawnEither) {
  set("OMPI_COMM_WORLD_RANK", "1");
  set("OMPI_COMM_WORLD_SIZE", "2");
  EXPECT_EQ(message_of<ConfigError>([] { spawn(2, [](int) {}); }),
            "spawn: a launcher has already made this process rank 1 (OMPI_COMM_WORLD_RANK is set), and 2 ranks in each "
            "of its processes are not meant: either start this program without the launcher, or call the function "
            "without spawn()");
  set("OMPI_COMM_WORLD_SIZE", "1");  // mpirun -n 1 does not start one of several ranks
  spawn(2, [](int) {});
  set("SLURM_PROCID", "3");
  set("SLURM_NTASKS", "4");  // like a shell of salloc
  spawn(2, [](int) {});
  set("SLURM_STEP_ID", "0");
  EXPECT_NE(message_of<ConfigError>([] { spawn(2, [](int) {}); }).find("rank 3 (SLURM_PROCID is set)"),
            std::string::npos);
}

}  // namespace
}  // namespace tandem::parallel
