#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>

#include <tandem/core/thread_pool.h>
#include <tandem/core/thread_state.h>
#include <tandem/kernels/conv.h>
#include <tandem/kernels/launch.h>
#include <tandem/kernels/matmul.h>

#include "kernel/floor_loops.h"
#include "step/step.h"

namespace bench {

namespace {

namespace kernels = tandem::kernels;

// Counts the multiply-adds of products and convolutions, with those of padding.
class Counter final : public kernels::LaunchObserver {
 public:
  void on_launch(kernels::Context& /*context*/, const kernels::LaunchRecord& record) override {
    const std::string_view name = record.name;
    if (name == kernels::Matmul::kName) {
      const auto& product = *static_cast<const kernels::Matmul*>(record.args);
      count_ += static_cast<double>(product.m) * static_cast<double>(product.n) * static_cast<double>(product.k);
    } else if (name == kernels::Conv::kName) {
      add(static_cast<const kernels::Conv*>(record.args)->shape);
    } else if (name == kernels::ConvInGrad::kName) {
      add(static_cast<const kernels::ConvInGrad*>(record.args)->shape);
    } else if (name == kernels::ConvWeightGrad::kName) {
      add(static_cast<const kernels::ConvWeightGrad*>(record.args)->shape);
    }
  }
  double count() const { return count_; }

 private:
  void add(const kernels::ConvShape& shape) {
    count_ += static_cast<double>(shape.batch * shape.out_size()) * static_cast<double>(shape.depth());
  }

  double count_ = 0;
};

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
  const std::unique_ptr<Step> step = make_eager(problem);
  Counter counter;
  tandem::core::ThreadState state = tandem::core::thread_state();
  state.observer = &counter;
  {
    const tandem::core::ThreadStateScope scope(state);
    step->run(1);
  }
  return std::make_unique<NetFloor>(counter.count());
}

}  // namespace bench
