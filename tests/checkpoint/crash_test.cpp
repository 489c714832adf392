#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include <tandem/checkpoint/generations.h>
#include <tandem/tandem.h>

#include "files_in_memory.h"
#include "recorded_disk.h"
#include "support/temp_dir.h"

// The states in which a power failure may leave a save, at each of its system calls: always the old file or the new
// one. Of a run's saves, one after another, always the last one that returned, or one that came after it.

namespace tandem::test {
namespace {

StateDict state_of(std::int64_t size, double value) {
  StateDict state;
  state.set("weight", full({size}, value));
  state.set("step", full({}, value, {.dtype = DType::i64}));
  return state;
}

struct Counts {
  std::int64_t states = 0;
  std::int64_t old = 0;
  std::int64_t fresh = 0;
  std::int64_t torn = 0;
  std::int64_t lost = 0;  // old, although the save had returned
};

// Saves over an old file, and looks at `per_call` states at each system call and after the last.
Counts crash_everywhere(RecordedDisk& disk, std::int64_t per_call) {
  const TempDir folder;
  const std::string path = folder.file("model");
  const auto content_of = [&](double value) {
    save(state_of(4096, value), path);
    return read_text(path);
  };
  const std::string old = content_of(1);
  const std::string fresh = content_of(2);
  std::filesystem::remove(path);
  disk.add(path, old);

  Counts counts;
  std::mt19937_64 random(7);
  bool returned = false;
  disk.before_call = [&](const RecordedDisk& now) {
    for (std::int64_t i = 0; i < per_call; ++i) {
      const RecordedDisk::Names& names = now.history[random() % now.history.size()];
      const std::string content = now.after_crash(names.at(path), random);
      ++counts.states;
      counts.old += content == old ? 1 : 0;
      counts.fresh += content == fresh ? 1 : 0;
      counts.torn += content != old && content != fresh ? 1 : 0;
      counts.lost += returned && content == old ? 1 : 0;
    }
  };
  checkpoint::write_tensors(state_of(4096, 2), path, {}, disk);
  returned = true;
  disk.before_call(disk);
  return counts;
}

std::int64_t states_per_call() {
  const char* wanted = std::getenv("TANDEM_CRASH_STATES");
  return wanted != nullptr ? std::atoll(wanted) : 1000;
}

TEST(CrashStates, AreTheOldFileOrTheNewOne) {
  RecordedDisk disk;
  const Counts counts = crash_everywhere(disk, states_per_call());
  EXPECT_GE(counts.states, 10 * states_per_call());
  EXPECT_GT(counts.old, 0);
  EXPECT_GT(counts.fresh, 0);
  EXPECT_EQ(counts.torn, 0);
  EXPECT_EQ(counts.lost, 0);
}

TEST(CrashStates, OfASaveThatForgetsToSynchroniseAreFound) {
  RecordedDisk torn;
  torn.forgets_file_sync = true;
  EXPECT_GT(crash_everywhere(torn, 100).torn, 0);
  RecordedDisk lost;
  lost.forgets_folder_sync = true;
  EXPECT_GT(crash_everywhere(lost, 100).lost, 0);
}

// Does in a folder of the system, too, what changes its names, because Generations lists it.
class RecordedFolder : public RecordedDisk {
 public:
  int open(const char* path, int flags, mode_t mode) override {
    const int descriptor = RecordedDisk::open(path, flags, mode);
    if (descriptor >= 0 && descriptor != kFolder) {
      paths_[descriptor] = path;
      write_text(path, "");
    }
    return descriptor;
  }
  int close(int descriptor) override {
    if (const auto found = paths_.find(descriptor); found != paths_.end()) {
      write_text(found->second, inodes[static_cast<std::size_t>(descriptor)].cached);
    }
    return RecordedDisk::close(descriptor);
  }
  int rename(const char* from, const char* to) override {
    std::filesystem::rename(from, to);
    return RecordedDisk::rename(from, to);
  }
  int unlink(const char* path) override {
    std::filesystem::remove(path);
    return RecordedDisk::unlink(path);
  }

 private:
  std::map<int, std::string> paths_;
};

TEST(CrashStates, OfARunsSavesHoldTheLastOneThatReturned) {
  for (const bool is_sharded : {false, true}) {
    const TempDir dir;
    const std::string crashed = dir.file("crashed");
    RecordedFolder disk;
    checkpoint::Generations generations(dir.file("checkpoints"), disk);
    std::mt19937_64 random(11);
    std::int64_t begun = 0;
    std::int64_t returned = 0;
    std::int64_t states = 0;
    std::map<std::int64_t, std::int64_t> lost;  // states by the steps that they have lost
    disk.before_call = [&](const RecordedDisk& now) {
      for (std::int64_t i = 0; i < states_per_call() / 20; ++i) {
        std::filesystem::remove_all(crashed);
        std::filesystem::create_directory(crashed);
        for (const auto& [path, number] : now.history[random() % now.history.size()]) {
          write_text(crashed + path.substr(path.rfind('/')), now.after_crash(number, random));
        }
        const checkpoint::Generation found = checkpoint::Generations::newest_whole(
            crashed, [](const std::string& problem) { ADD_FAILURE() << problem; });
        const std::int64_t step = found.path.empty() ? 0 : found.state.at("step").item<std::int64_t>();
        EXPECT_GE(step, returned);
        EXPECT_LE(step, begun);
        ++states;
        ++lost[begun - step];
      }
    };
    for (begun = 1; begun <= 5; ++begun) {
      const std::string session = std::to_string(begun);
      checkpoint::Metadata texts{{"step", session}};
      if (is_sharded) {
        generations.write_shard(begun, 1, StateDict({{"shard", zeros({700})}}), session);
        texts.emplace_back(checkpoint::kShards, "2");
        texts.emplace_back(checkpoint::kSession, session);
      }
      generations.write(begun, state_of(1024, static_cast<double>(begun)), texts, 2);
      returned = begun;
    }
    EXPECT_GE(states, 2 * states_per_call());
    EXPECT_GT(lost[0], 0);
    EXPECT_GT(lost[1], 0);
  }
}

}  // namespace
}  // namespace tandem::test
