#include "step/multiply_adds.h"

#include <string_view>

#include <tandem/core/thread_state.h>
#include <tandem/kernels/conv.h>
#include <tandem/kernels/launch.h>
#include <tandem/kernels/matmul.h>

namespace bench {

namespace {

namespace kernels = tandem::kernels;

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

}  // namespace

double multiply_adds_of(Step& step) {
  Counter counter;
  tandem::core::ThreadState state = tandem::core::thread_state();
  state.observer = &counter;
  const tandem::core::ThreadStateScope scope(state);
  step.run(1);
  return counter.count();
}

}  // namespace bench
