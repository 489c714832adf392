#include <atomic>
#include <cstdlib>
#include <new>
#include <string>

#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "support/temp_dir.h"

// Saving and loading when the k-th allocation fails, for every k: an exception, the old file, and no leak.

namespace {

std::atomic<long> allocations_left = -1;  // negative: all succeed
std::atomic<bool> for_ever = false;

bool fails_now() {
  if (allocations_left.load() < 0) {
    return false;
  }
  if (allocations_left.fetch_sub(1) > 0) {
    return false;
  }
  allocations_left = for_ever ? 0 : -1;
  return true;
}

}  // namespace

void* operator new(std::size_t bytes) {
  void* memory = fails_now() ? nullptr : std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*bytes*/) noexcept { std::free(memory); }

namespace tandem::test {
namespace {

// Runs `body` with ever later failures until none comes. Returns their number.
template <class Body, class Check>
int fail_each(bool again_and_again, const Body& body, const Check& check) {
  for (int k = 0;; ++k) {
    for_ever = again_and_again;
    allocations_left = k;
    bool failed = false;
    try {
      body();
    } catch (const std::bad_alloc&) {
      failed = true;
    } catch (const Error&) {
      failed = true;
    }
    const bool was_reached = allocations_left.exchange(-1) <= 0;
    check(k, failed);
    if (!was_reached) {
      return k;
    }
  }
}

StateDict small_state(double value) {
  StateDict state;
  state.set("weight", full({3, 4}, value));
  state.set("half", full({5}, value, {.dtype = DType::bf16}));
  state.set("steps", full({}, value, {.dtype = DType::i64}));
  return state;
}

TEST(AllocationsThatFail, LeaveTheOldFileWhenSaving) {
  const TempDir folder;
  const std::string path = folder.file("model");
  const StateDict old = small_state(1);
  const StateDict fresh = small_state(2);
  for (const bool again_and_again : {false, true}) {
    save(old, path);
    const std::string before = read_text(path);
    const int failures = fail_each(
        again_and_again, [&] { save(fresh, path); },
        [&](int k, bool failed) {
          if (failed) {
            EXPECT_EQ(read_text(path), before) << k;
          } else {
            EXPECT_EQ(load(path).at("weight").to_vector<float>()[0], 2.0F) << k;
            save(old, path);
          }
          EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1) << k;
        });
    EXPECT_GE(failures, 20);
  }
}

TEST(AllocationsThatFail, EndLoadingWithAnError) {
  const TempDir folder;
  save(small_state(3), folder.file("model"));
  for (const bool again_and_again : {false, true}) {
    StateDict state;
    const int failures = fail_each(
        again_and_again, [&] { state = load(folder.file("model")); },
        [&](int k, bool failed) {
          if (!failed) {
            EXPECT_EQ(state.size(), 3U) << k;
          }
          state = StateDict();
        });
    EXPECT_GE(failures, 20);
  }
}

}  // namespace
}  // namespace tandem::test
