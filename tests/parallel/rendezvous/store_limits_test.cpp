#include <filesystem>

#include <sys/wait.h>
#include <unistd.h>

#include "parallel/rendezvous/stores.h"
#include "support/message.h"

// The requests that stores refuse, and the messages.

namespace tandem::test {
namespace {

class StoreLimits : public EveryStore {};

TEST_P(StoreLimits, WrongCallsAreNamed) {
  const auto store = job_->join(0);
  EXPECT_EQ(message_of<ConfigError>([&] { store->set("", "x"); }),
            "store set: expected a key of 1 to 1024 bytes, got 0");
  EXPECT_EQ(message_of<ConfigError>([&] { store->get(std::string(1025, 'k')); }),
            "store get: expected a key of 1 to 1024 bytes, got 1025");
  EXPECT_EQ(message_of<ConfigError>([&] { store->set("a\nb", std::string(1048577, 'v')); }),
            "store set: the value of 'a.b' has 1048577 bytes, at most 1048576 are allowed: cut it into several keys");
  EXPECT_EQ(message_of<ConfigError>([&] { store->add("k", 1, 0ms); }),
            "store add: expected a timeout of 1 ms to 86400000 ms, got 0 ms");
  EXPECT_EQ(message_of<ConfigError>([&] { store->wait(std::vector<std::string>{"k"}, 86400001ms); }),
            "store wait: expected a timeout of 1 ms to 86400000 ms, got 86400001 ms");
}

TEST_P(StoreLimits, AFullStoreSaysSoAndGoesOn) {
  const auto store = job_->join(0);
  const std::string large(parallel::kMaxStoreValue, 'x');
  const auto fill = [&] {
    for (int i = 0; i < 100; ++i) {
      store->set("large" + std::to_string(i), large);
    }
  };
  EXPECT_EQ(kind_of(fill), StoreError::Kind::refused);
  EXPECT_EQ(store->try_get("large62"), large);
  EXPECT_EQ(store->try_get("large64"), std::nullopt);
  store->set("large0", large);  // replaces the old value, so it takes no more room
  EXPECT_TRUE(store->erase("large0"));
  store->set("large99", large);
}

INSTANTIATE_TEST_SUITE_P(Stores, StoreLimits, testing::ValuesIn(kJobs),
                         [](const auto& kind) { return std::string(kind.param.name); });

TEST(MemoryStore, NamesWhatIsTooMuch) {
  parallel::MemoryStore store;
  const std::string large(parallel::kMaxStoreValue, 'x');
  for (int i = 0; i < 63; ++i) {
    store.set("large" + std::to_string(i), large);
  }
  EXPECT_EQ(message_of<StoreError>([&] { store.set("more", large); }),
            "store set: 'more' needs 1048708 bytes more, and 66068783 of 67108864 are in use: erase keys that are no "
            "longer needed");
}

TEST(FileStore, RefusesAFolderInWhichTheRankWasBefore) {
  const TempDir folder;
  {
    parallel::FileStore store(folder.path(), 3);
    parallel::FileStore other(folder.path(), 4);
  }
  const std::string text = message_of<ConfigError>([&] { parallel::FileStore store(folder.path(), 3); });
  const std::string start =
      "file store '" + folder.path() + "': rank 3 was here before (pid " + std::to_string(::getpid()) + " on ";
  EXPECT_EQ(text.substr(0, start.size()), start);
  const std::string end = "). Each start of a job needs a fresh folder: remove this one, or name another";
  EXPECT_EQ(text.substr(text.size() - end.size()), end);
}

TEST(FileStore, NamesAFolderThatItCannotHave) {
  const TempDir folder;
  const std::string file = folder.write("file", "");
  EXPECT_EQ(message_of<IoError>([&] { parallel::FileStore store(file + "/below", 0); }),
            "cannot create '" + file + "/below': Not a directory");
  EXPECT_EQ(message_of<ConfigError>([&] { parallel::FileStore store("", 0); }),
            "file store: expected a folder, got an empty path");
  EXPECT_EQ(message_of<ConfigError>([&] { parallel::FileStore store("x", -1); }),
            "file store 'x': expected a rank of 0 or more, got -1");
}

TEST(FileStore, LockOfAKilledProcessIsFree) {
  const TempDir folder;
  const std::string path = folder.file("store");
  parallel::FileStore store(path, 0);
  for (int i = 0; i < 5; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      for (;;) {
        store.add("n", 1);
      }
    }
    std::this_thread::sleep_for(20ms);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    EXPECT_GE(store.add("n", 1, 5s), 1);
  }
}

}  // namespace
}  // namespace tandem::test
