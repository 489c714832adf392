// A rank that works until it or another rank is killed. It reports to FOLDER/rank<r>, one line for each event: "started
// <ns>", "joined <ns>", "error <ns> <fault> <rank> <text>". Times are nanoseconds of CLOCK_MONOTONIC, which all
// processes of a machine share.
//
//     chaos_rank FOLDER [ROUNDS]     without ROUNDS: for ever

#include <time.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>
#include <thread>

#include <fmt/format.h>

#include <tandem/tandem.h>

using namespace tandem;

namespace {

std::int64_t now() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

// Uses a group like training steps do: buckets of many sizes, a sub-group, and pauses in which a rank only computes.
void work(parallel::ProcessGroup& group, std::int64_t rounds) {
  const int size = group.size();
  std::minstd_rand pauses(static_cast<unsigned>(group.rank()) + 1);
  const std::unique_ptr<parallel::ProcessGroup> pair = size > 1 ? group.new_group({0, 1}) : nullptr;
  for (std::int64_t round = 0; rounds < 0 || round < rounds; ++round) {
    for (const std::int64_t numel : {1, 1'000, 30'000, 1'000'000}) {
      const Tensor x = full({numel}, static_cast<float>(group.rank() + 1));
      group.all_reduce(x);
      const float expected = static_cast<float>(size * (size + 1) / 2);
      if (x.min().item<float>() != expected || x.max().item<float>() != expected) {
        throw ValueError("a sum is wrong");
      }
    }
    if (pair != nullptr) {
      pair->broadcast(full({10}, 1.0F), 0);
    }
    group.all_gather_into_tensor(zeros({size, 100}), ones({100}));
    if (pauses() % 4 == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(pauses() % 20));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const char* rank = std::getenv("RANK");
  if (argc < 2 || rank == nullptr) {
    fmt::print(stderr, "usage: tandem run -n N chaos_rank FOLDER [ROUNDS]\n");
    return 2;
  }
  std::ofstream report(fmt::format("{}/rank{}", argv[1], rank));
  report << "started " << now() << std::endl;
  try {
    const parallel::ProcessGroupGuard guard;
    report << "joined " << now() << std::endl;
    try {
      work(guard.group(), argc > 2 ? std::strtoll(argv[2], nullptr, 10) : -1);
    } catch (const CommError& error) {
      report << fmt::format("error {} {} {} {}", now(), name(error.details().fault), error.details().rank, error.what())
             << std::endl;
      return 3;
    }
  } catch (const CommError& error) {
    report << fmt::format("error {} {} {} {}", now(), name(error.details().fault), error.details().rank, error.what())
           << std::endl;
    return 3;
  } catch (const std::exception& error) {
    report << "failed " << error.what() << std::endl;
    return 4;
  }
  report << "done " << now() << std::endl;
  return 0;
}
