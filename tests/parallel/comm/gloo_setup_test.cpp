#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/parallel/comm/alarm.h>
#include <tandem/tandem.h>

#include "gloo_ranks.h"
#include "support/clock.h"
#include "support/message.h"

// How ranks over Gloo find each other.

namespace tandem::parallel {
namespace {

using namespace std::chrono_literals;
using test::message_of;
using test::on_threads;
using test::seconds_since;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

// Much shorter than the deadline of the set-up.
constexpr double kSetUpSoon = 30;

TEST(GlooSetup, NamesTheRanksThatDoNotCome) {
  const auto store = std::make_shared<MemoryStore>();
  const auto error_of = [&](int rank) {
    try {
      gloo_backend({.store = store, .rank = rank, .size = 4, .setup_timeout = 200ms});
    } catch (const CommError& error) {
      EXPECT_EQ(error.details().fault, CommFault::init);
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  // The ranks run one after another: the value of a rank that came stays, and no rank can be too late for another.
  EXPECT_THAT(error_of(1), HasSubstr("process group 'gloo': rank 1 of 4: ranks 0, 2, 3 have not come in time"));
  EXPECT_THAT(error_of(0), HasSubstr("process group 'gloo': rank 0 of 4: ranks 2, 3 have not come in time"));
  EXPECT_THAT(error_of(2), HasSubstr("process group 'gloo': rank 2 of 4: rank 3 has not come in time"));
}

TEST(GlooSetup, RefusesASecondProcessWithTheSameRank) {
  const auto store = std::make_shared<MemoryStore>();
  const auto begin = Clock::now();
  const auto errors = on_threads(3, [&](int number) {
    ProcessGroup group(gloo_backend({.store = store, .rank = number == 0 ? 0 : 1, .size = 2}), {.timeout = 20s});
    const Tensor tensor = ones({5});
    group.all_reduce(tensor);
    EXPECT_EQ(tensor[0].item(), 2);
  });
  EXPECT_LT(seconds_since(begin), kSetUpSoon);
  EXPECT_FALSE(errors[0]);
  ASSERT_NE(errors[1].has_value(), errors[2].has_value());  // the later rank fails
  const CommError& error = errors[1] ? *errors[1] : *errors[2];
  EXPECT_EQ(error.details().fault, CommFault::init);
  EXPECT_THAT(error.what(), HasSubstr("rank 1 of 2: another process has this rank already"));
}

TEST(GlooSetup, ChecksItsOptions) {
  EXPECT_EQ(message_of<ConfigError>([] { gloo_backend({}); }), "gloo_backend: there is no store");
  const auto store = std::make_shared<MemoryStore>();
  EXPECT_EQ(message_of<ConfigError>([&] { gloo_backend({.store = store, .rank = 2, .size = 2}); }),
            "gloo_backend: rank 2 of 2 ranks; expected one from 0 to 1");
  EXPECT_THAT(message_of<ConfigError>([&] { gloo_backend({.store = store, .setup_timeout = 0ms}); }),
              HasSubstr("a timeout of 0 ms"));
  EXPECT_THAT(message_of<ConfigError>([&] { gloo_backend({.store = store, .address = "192.0.2.77"}); }),
              HasSubstr("cannot listen at '192.0.2.77', which is no address of this machine"));
  ASSERT_EQ(::setenv("TANDEM_SOCKET_IFNAME", "nosuch0", 1), 0);
  EXPECT_THAT(message_of<ConfigError>([&] { gloo_backend({.store = store}); }),
              AllOf(HasSubstr("TANDEM_SOCKET_IFNAME is 'nosuch0'"), HasSubstr("it has lo")));
  ASSERT_EQ(::setenv("TANDEM_SOCKET_IFNAME", "lo", 1), 0);
  EXPECT_EQ(gloo_backend({.store = store})->name(), "gloo");
  ::unsetenv("TANDEM_SOCKET_IFNAME");
}

// A stranger connects to an address before the other ranks know it, and stays.
class StoreWithStranger final : public Store {
 public:
  ~StoreWithStranger() override {
    for (const int fd : fds_) {
      ::close(fd);
    }
  }
  std::size_t strangers() const { return fds_.size(); }

 private:
  void do_set(std::string_view key, std::string_view value, Deadline) override {
    // A port and 127.0.0.1 in the system's format, which the address of every Gloo version contains.
    const std::size_t host = value.find(std::string_view("\x7f\0\0\1", 4));
    if (key.find("/attempt/0/") != key.npos && host != value.npos && host >= 2) {
      sockaddr_in address{};
      address.sin_family = AF_INET;
      std::memcpy(&address.sin_port, value.data() + host - 2, 2);
      std::memcpy(&address.sin_addr, value.data() + host, 4);
      const std::lock_guard lock(mutex_);
      fds_.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      EXPECT_EQ(::connect(fds_.back(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    }
    store_.set(key, value);
  }
  bool do_get(std::string_view key, bool wait, std::string* value, Deadline deadline) override {
    const auto left = std::max(1ms, std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()));
    const auto found = wait ? store_.get_while(key, left, [] { return true; }) : store_.try_get(key, left);
    if (found && value != nullptr) {
      *value = *found;
    }
    return found.has_value();
  }
  std::int64_t do_add(std::string_view key, std::int64_t amount, Deadline) override { return store_.add(key, amount); }
  bool do_erase(std::string_view key, Deadline) override { return store_.erase(key); }

  MemoryStore store_;
  std::mutex mutex_;
  std::vector<int> fds_;
};

TEST(GlooSetup, ConnectsAgainWhenAStrangerSitsInTheWay) {
  const auto store = std::make_shared<StoreWithStranger>();
  const auto begin = Clock::now();
  const auto errors = on_threads(2, [&](int rank) {
    ProcessGroup group(gloo_backend({.store = store, .rank = rank, .size = 2, .greeting_timeout = 500ms}));
    const Tensor tensor = ones({5});
    group.all_reduce(tensor);
    EXPECT_EQ(tensor[0].item(), 2);
  });
  EXPECT_FALSE(errors[0]) << errors[0]->what();
  EXPECT_FALSE(errors[1]) << errors[1]->what();
  EXPECT_GT(store->strangers(), 0U);
  EXPECT_LT(seconds_since(begin), kSetUpSoon);
}

// A store that knows its keys.
class StoreWithList final : public Store {
 public:
  std::set<std::string> keys() const {
    const std::lock_guard lock(mutex_);
    return keys_;
  }

 private:
  void note(std::string_view key, bool is_there) {
    const std::lock_guard lock(mutex_);
    is_there ? void(keys_.emplace(key)) : void(keys_.erase(std::string(key)));
  }
  void do_set(std::string_view key, std::string_view value, Deadline) override {
    note(key, true);
    store_.set(key, value);
  }
  bool do_get(std::string_view key, bool wait, std::string* value, Deadline deadline) override {
    const auto left = std::max(1ms, std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()));
    const auto found = wait ? store_.get_while(key, left, [] { return true; }) : store_.try_get(key, left);
    if (found && value != nullptr) {
      *value = *found;
    }
    return found.has_value();
  }
  std::int64_t do_add(std::string_view key, std::int64_t amount, Deadline) override {
    note(key, true);
    return store_.add(key, amount);
  }
  bool do_erase(std::string_view key, Deadline) override {
    note(key, false);
    return store_.erase(key);
  }

  MemoryStore store_;
  mutable std::mutex mutex_;
  std::set<std::string> keys_;
};

TEST(GlooSetup, LeavesNothingInTheStoreButWhoHasComeToTheFirstGroup) {
  const auto store = std::make_shared<StoreWithList>();
  const auto errors = on_threads(3, [&](int rank) {
    ProcessGroup group(gloo_backend({.store = store, .rank = rank, .size = 3}));
    for (int i = 0; i < 3; ++i) {
      const auto all = group.new_group({0, 1, 2});
      const auto pair = group.new_group({0, 2});
      all->barrier();
    }
    group.barrier();
    EXPECT_EQ(store->keys(), (std::set<std::string>{"gloo/claim/0", "gloo/claim/1", "gloo/claim/2"}));
    group.barrier();
  });
  for (const auto& error : errors) {
    EXPECT_FALSE(error) << error->what();
  }
}

TEST(GlooSetup, RefusesASecondProcessLaterToo) {
  const auto store = std::make_shared<MemoryStore>();
  const auto errors = on_threads(2, [&](int rank) {
    ProcessGroup group(gloo_backend({.store = store, .rank = rank, .size = 2}));
    group.barrier();
    if (rank == 1) {
      EXPECT_THAT(message_of<CommError>([&] { gloo_backend({.store = store, .rank = 1, .size = 2}); }),
                  HasSubstr("rank 1 of 2: another process has this rank already"));
    }
    group.barrier();
  });
  EXPECT_FALSE(errors[0]) << errors[0]->what();
  EXPECT_FALSE(errors[1]) << errors[1]->what();
}

TEST(GlooSetup, EndsWhenTheAlarmRings) {
  const auto store = std::make_shared<MemoryStore>();
  const auto alarm = std::make_shared<Alarm>();
  const CommError cause("rank 1 was killed", {.fault = CommFault::peer_lost, .rank = 1});
  alarm->ring(cause);
  const auto begin = Clock::now();
  const auto errors =
      on_threads(2, [&](int rank) { gloo_backend({.store = store, .rank = rank, .size = 2, .alarm = alarm}); });
  EXPECT_STREQ(errors[0]->what(), "rank 1 was killed");
  EXPECT_LT(seconds_since(begin), kSetUpSoon);
}

}  // namespace
}  // namespace tandem::parallel
