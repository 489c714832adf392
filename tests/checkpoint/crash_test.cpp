#include <cstdlib>
#include <random>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "files_in_memory.h"
#include "recorded_disk.h"
#include "support/temp_dir.h"

// The states in which a power failure may leave a save, at each of its system calls: always the old file or the new
// one.

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

}  // namespace
}  // namespace tandem::test
