#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

#include <gtest/gtest.h>

#include <tandem/core/cores.h>
#include <tandem/core/error.h>
#include <tandem/core/thread_pool.h>
#include <tandem/core/thread_state.h>

#include "support/message.h"
#include "support/thread_count.h"

namespace tandem::core {
namespace {

using test::message_of;
using test::ThreadCount;

ThreadPool& pool() { return ThreadPool::instance(); }

// The number of times that each chunk ran.
std::vector<int> visits(std::int64_t chunks) {
  std::vector<std::atomic<int>> counts(static_cast<std::size_t>(chunks));
  pool().for_each_chunk(chunks, [&](std::int64_t chunk) { ++counts[static_cast<std::size_t>(chunk)]; });
  return {counts.begin(), counts.end()};
}

class Pool : public ::testing::TestWithParam<int> {
 protected:
  ThreadCount threads_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Threads, Pool, ::testing::Values(1, 2, 3, 8), ::testing::PrintToStringParamName());

TEST_P(Pool, RunsEveryChunkOnce) {
  for (const std::int64_t chunks : {1, 2, 3, 7, 64, 1000}) {
    EXPECT_EQ(visits(chunks), std::vector<int>(static_cast<std::size_t>(chunks), 1));
  }
}

TEST_P(Pool, NoChunksMeansNoCall) {
  for (const std::int64_t chunks : {0, -1}) {
    pool().for_each_chunk(chunks, [](std::int64_t) { FAIL(); });
  }
  parallel_for(0, 4, [](std::int64_t, std::int64_t) { FAIL(); });
  parallel_for(-5, 4, [](std::int64_t, std::int64_t) { FAIL(); });
}

TEST_P(Pool, ParallelForCutsByGrainAlone) {
  for (const std::int64_t total : {1, 5, 6, 7, 12, 100}) {
    std::mutex mutex;
    std::set<std::pair<std::int64_t, std::int64_t>> ranges;
    parallel_for(total, 6, [&](std::int64_t begin, std::int64_t end) {
      const std::lock_guard lock(mutex);
      EXPECT_TRUE(ranges.emplace(begin, end).second);
    });
    std::int64_t expected_begin = 0;
    for (const auto& [begin, end] : ranges) {
      EXPECT_EQ(begin, expected_begin);
      EXPECT_EQ(end, std::min(begin + 6, total));
      expected_begin = end;
    }
    EXPECT_EQ(expected_begin, total);
  }
}

TEST_P(Pool, WritesOfChunksAreSeenByTheCaller) {
  for (int round = 0; round < 200; ++round) {
    std::vector<int> values(50);
    pool().for_each_chunk(50, [&](std::int64_t chunk) { values[static_cast<std::size_t>(chunk)] = round; });
    ASSERT_EQ(std::count(values.begin(), values.end(), round), 50);
  }
}

TEST_P(Pool, RethrowsTheExceptionOfTheLowestChunk) {
  for (int round = 0; round < 50; ++round) {
    const auto body = [](std::int64_t chunk) {
      if (chunk % 7 == 3) {
        throw ValueError("chunk " + std::to_string(chunk));
      }
    };
    EXPECT_EQ(message_of<ValueError>([&] { pool().for_each_chunk(40, body); }), "chunk 3");
  }
  EXPECT_EQ(visits(20), std::vector<int>(20, 1)) << "the pool works on after an exception";
}

TEST_P(Pool, RethrowsWhatIsNoTandemErrorToo) {
  EXPECT_THROW(pool().for_each_chunk(4, [](std::int64_t) { throw 7; }), int);
  EXPECT_THROW(pool().for_each_chunk(4,
                                     [](std::int64_t chunk) {
                                       if (chunk == 3) throw std::runtime_error("last");
                                     }),
               std::runtime_error);
}

TEST_P(Pool, NestedCallsRunInsideTheirChunk) {
  std::atomic<int> inner_runs{0};
  std::atomic<bool> moved{false};
  pool().for_each_chunk(6, [&](std::int64_t) {
    const std::thread::id outer = std::this_thread::get_id();
    pool().for_each_chunk(5, [&](std::int64_t) {
      ++inner_runs;
      moved = moved || std::this_thread::get_id() != outer;
      parallel_for(10, 3, [&](std::int64_t begin, std::int64_t end) { inner_runs += static_cast<int>(end - begin); });
    });
  });
  EXPECT_EQ(inner_runs, 6 * 5 * 11);
  EXPECT_FALSE(moved);
}

TEST_P(Pool, NestedExceptionsReachTheCaller) {
  EXPECT_EQ(message_of<ConfigError>([] {
              pool().for_each_chunk(6, [&](std::int64_t outer) {
                pool().for_each_chunk(6, [&](std::int64_t inner) {
                  if (inner == 2) throw ConfigError(std::to_string(outer) + "." + std::to_string(inner));
                });
              });
            }),
            "0.2");
  std::atomic<int> after{0};
  pool().for_each_chunk(8, [&](std::int64_t) { ++after; });
  EXPECT_EQ(after, 8);
}

TEST_P(Pool, ServesSeveralCallersAtOnce) {
  std::vector<std::jthread> masters;
  std::atomic<int> wrong{0};
  for (int master = 0; master < 4; ++master) {
    masters.emplace_back([&, master] {
      for (int round = 0; round < 100; ++round) {
        const std::int64_t chunks = 1 + (master * 31 + round) % 20;
        if (visits(chunks) != std::vector<int>(static_cast<std::size_t>(chunks), 1)) ++wrong;
      }
    });
  }
  masters.clear();
  EXPECT_EQ(wrong, 0);
}

TEST_P(Pool, AnExceptionStaysWithItsCaller) {
  std::atomic<int> caught{0};
  {
    std::jthread failing([&] {
      for (int round = 0; round < 100; ++round) {
        try {
          pool().for_each_chunk(5, [](std::int64_t) { throw IoError("mine"); });
        } catch (const IoError&) {
          ++caught;
        }
      }
    });
    for (int round = 0; round < 100; ++round) {
      ASSERT_EQ(visits(5), std::vector<int>(5, 1));
    }
  }
  EXPECT_EQ(caught, 100);
}

TEST_P(Pool, CarriesTheStateOfTheCaller) {
  ThreadState state = thread_state();
  state.device = Device("cpu:3");
  state.grad_enabled = false;
  const ThreadStateScope scope(state);
  std::atomic<int> carried{0};
  pool().for_each_chunk(
      64, [&](std::int64_t) { carried += thread_state().device == Device("cpu:3") && !thread_state().grad_enabled; });
  EXPECT_EQ(carried, 64);
}

// A late worker gets the state of the call, even if the caller's own chunk changed its state meanwhile.
TEST_P(Pool, CarriesTheStateOfTheCallNotOfAChunk) {
  std::atomic<int> wrong{0};
  for (int round = 0; round < 200; ++round) {
    pool().for_each_chunk(16, [&](std::int64_t) {
      wrong += !thread_state().grad_enabled;
      ThreadState inside = thread_state();
      inside.grad_enabled = false;
      const ThreadStateScope scope(inside);
      std::this_thread::yield();
    });
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(thread_state().grad_enabled);
}

TEST_P(Pool, UsesItsThreads) {
  // Chunks that wait for each other can end only if each one has a thread.
  const int threads = num_threads();
  std::atomic<int> arrived{0};
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  pool().for_each_chunk(threads, [&](std::int64_t) {
    ++arrived;
    while (arrived < threads && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::yield();
    }
  });
  EXPECT_LT(std::chrono::steady_clock::now(), deadline);
}

TEST(SetNumThreads, TakesEffectAtOnce) {
  const ThreadCount restore(2);
  for (const int count : {1, 5, 2, 16, 3, 1}) {
    set_num_threads(count);
    EXPECT_EQ(num_threads(), count);
    EXPECT_EQ(visits(33), std::vector<int>(33, 1));
  }
}

TEST(SetNumThreads, RefusesUnusableCounts) {
  EXPECT_EQ(message_of<ConfigError>([] { set_num_threads(0); }), "set_num_threads: expected 1 to 256, got 0");
  EXPECT_THROW(set_num_threads(-1), ConfigError);
  EXPECT_THROW(set_num_threads(257), ConfigError);
}

TEST(SetNumThreads, IsRefusedInsideAnOp) {
  for (const int threads : {2, 4}) {
    const ThreadCount scope(threads);
    EXPECT_EQ(message_of<ConfigError>([] { pool().for_each_chunk(8, [](std::int64_t) { set_num_threads(3); }); }),
              "set_num_threads: called while an op is running; call it between ops");
    EXPECT_EQ(num_threads(), threads);
  }
}

TEST(SetNumThreads, WorksAfterALookAtOnesShare) {
  const ThreadCount scope(2);
  std::jthread([] {
    EXPECT_GE(pool().share(), 1);
    EXPECT_NO_THROW(set_num_threads(3));
  }).join();
}

// Many such threads may exist, one after the other.
TEST(Pool, ThreadsThatComputeAtTheirVeryEndLeaveNothingBehind) {
  const ThreadCount scope(2);
  struct Late {
    std::vector<int> counts = visits(5);  // made before the pool's own thread_local marker, so destroyed after it
    ~Late() { EXPECT_EQ(visits(5), std::vector<int>(5, 1)); }
  };
  for (int i = 0; i < 50; ++i) {
    std::jthread([] {
      thread_local const Late late;
      EXPECT_EQ(late.counts.size(), 5u);
    }).join();
  }
}

// Another thread may be anywhere between its ops: the call either takes effect or throws.
TEST(SetNumThreads, IsSafeWhileOthersWork) {
  const ThreadCount restore(2);
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::vector<std::jthread> masters;
  for (int i = 0; i < 2; ++i) {
    masters.emplace_back([&] {
      while (!stop)
        wrong += visits(9) != std::vector<int>(9, 1);
    });
  }
  std::vector<std::jthread> setters;
  for (int setter = 0; setter < 2; ++setter) {
    setters.emplace_back([setter] {
      for (int round = 0; round < 50; ++round) {
        try {
          set_num_threads(1 + (round + setter) % 4);
        } catch (const ConfigError&) {
          std::this_thread::yield();
        }
      }
    });
  }
  setters.clear();
  stop = true;
  masters.clear();
  EXPECT_EQ(wrong, 0);
}

TEST(Cores, AreNoMoreThanTheQuotaOfTheControlGroup) {
  EXPECT_EQ(cores_of_quota("200000 100000"), 2);
  EXPECT_EQ(cores_of_quota("150000 100000"), 2);
  EXPECT_EQ(cores_of_quota("1000 100000"), 1);
  for (const char* none : {"max 100000", "-1 100000", "", "200000", "200000 0", "x y", " "}) {
    EXPECT_EQ(cores_of_quota(none), 0) << none;
  }
#if defined(__linux__)
  cpu_set_t own;
  ASSERT_EQ(sched_getaffinity(0, sizeof(own), &own), 0);
  EXPECT_LE(available_cores(), CPU_COUNT(&own));
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int core = 0; CPU_COUNT(&one) == 0; ++core) {
    if (CPU_ISSET(core, &own)) {
      CPU_SET(core, &one);
    }
  }
  std::jthread([&] {
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    EXPECT_EQ(available_cores(), 1);
  }).join();
#endif
  EXPECT_GE(available_cores(), 1);
  EXPECT_LE(available_cores(), static_cast<int>(std::thread::hardware_concurrency()));
}

// Two replicas on two threads would only wait for helpers without a core.
TEST(SeveralCallers, GetNoHelpersWhenThereAreAsManyAsThreads) {
  const ThreadCount scope(2);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  std::atomic<int> inside{0};
  std::atomic<int> helped{0};
  std::atomic<bool> stop{false};
  const auto call = [&] {
    while (!stop) {
      const auto own = std::this_thread::get_id();
      pool().for_each_chunk(4, [&](std::int64_t) { helped += std::this_thread::get_id() != own ? 1 : 0; });
      ++inside;
    }
  };
  std::jthread first(call);
  std::jthread second(call);
  const auto calls = [&](int count) {
    for (inside = 0; inside < count && std::chrono::steady_clock::now() < deadline;) {
      std::this_thread::yield();
    }
  };
  calls(2000);  // both callers have been counted
  helped = 0;
  calls(2000);
  const int few = helped;
  stop = true;
  first.join();
  second.join();
  // One of the two may have been off its core for so long that it briefly did not count.
  EXPECT_LT(few, 2000);
  // A caller that is alone again gets its helpers back.
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  std::atomic<int> arrived{0};
  pool().for_each_chunk(2, [&](std::int64_t) {
    for (++arrived; arrived < 2 && std::chrono::steady_clock::now() < deadline;) {
      std::this_thread::yield();
    }
  });
  EXPECT_EQ(arrived, 2);
  EXPECT_LT(std::chrono::steady_clock::now(), deadline);
}

void exit_with_threads(const char* text) {
  setenv("TANDEM_NUM_THREADS", text, 1);
  try {
    std::_Exit(num_threads());
  } catch (const ConfigError& error) {
    std::fputs(error.what(), stderr);
    std::_Exit(99);
  }
}

#if defined(__linux__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// The system refuses the memory for stacks of 8 MiB each; the pool reports that and continues with one thread.
void exit_without_memory_for_threads() {
  set_num_threads(1);
  const rlimit limit{std::size_t{300} << 20, std::size_t{300} << 20};
  setrlimit(RLIMIT_AS, &limit);
  try {
    set_num_threads(200);
    std::_Exit(98);
  } catch (const ConfigError& error) {
    std::fputs(error.what(), stderr);
    std::_Exit(num_threads());
  }
}

TEST(NumThreadsDeathTest, MoreThanTheSystemGivesIsAnError) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(exit_without_memory_for_threads(), ::testing::ExitedWithCode(1),
              "200 compute threads: the system refuses more than [0-9]+");
}
#endif

// The variable is read once, when the pool is made, so each value needs a new process.
TEST(NumThreadsDeathTest, ComeFromTheEnvironment) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(exit_with_threads("5"), ::testing::ExitedWithCode(5), "");
  EXPECT_EXIT(exit_with_threads("1"), ::testing::ExitedWithCode(1), "");
  for (const char* text : {"0", "257", "many", "", "-2", "2 "}) {
    EXPECT_EXIT(exit_with_threads(text), ::testing::ExitedWithCode(99),
                "TANDEM_NUM_THREADS='" + std::string(text) + "': expected a number from 1 to 256");
  }
}

}  // namespace
}  // namespace tandem::core
