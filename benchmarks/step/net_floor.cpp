#include <algorithm>
#include <cmath>
#include <cstdint>

#include <tandem/core/thread_pool.h>

#include "kernel/floor_loops.h"
#include "step/multiply_adds.h"
#include "step/step.h"

namespace bench {

namespace {

// The multiply-adds of a step on registers alone, shared out to the threads.
class NetFloor final : public Step {
 public:
  explicit NetFloor(double multiply_adds) {
    const double of_round = kernel::floor_loops().multiply_add_f32(1) / 2;
    rounds_ = std::max<std::int64_t>(1, std::llround(multiply_adds / of_round));
  }
  void run(std::int64_t steps) override {
    const std::int64_t rounds = steps * rounds_;
    const std::int64_t share = (rounds + tandem::num_threads() - 1) / tandem::num_threads();
    tandem::core::parallel_for(rounds, share, [](std::int64_t begin, std::int64_t end) {
      kernel::floor_loops().multiply_add_f32(end - begin);
    });
  }
  double loss() const override { return std::nan(""); }

 private:
  std::int64_t rounds_;
};

}  // namespace

std::unique_ptr<Step> make_net_floor(const Problem& problem) {
  return std::make_unique<NetFloor>(multiply_adds_of(*make_eager(problem)));
}

}  // namespace bench
