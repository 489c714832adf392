#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/autograd/ops.h>
#include <tandem/core/grad_mode.h>
#include <tandem/tensor/factories.h>

#include "support/forked.h"
#include "support/gpu.h"

// A process that is forked while its threads train.

namespace tandem {
namespace {

// A step over two devices; a worker of the pool runs the second one. The product is too large for a per-thread cache.
bool trains() {
  const Tensor x = full({300, 300}, 1.0);
  Tensor w = full({300, 300}, 2.0).requires_grad_();
  const Tensor here = x.matmul(w).sum();
  const Tensor there = (w.to("cpu:1") * 3).sum().to("cpu:0");
  (here + there).backward();
  return here.item() == 2.0 * 300 * 300 * 300 && w.grad().sum().item() == (300.0 + 3) * 300 * 300;
}

TEST(Fork, AChildTrainsWhileItsParentDoes) {
  TANDEM_SKIP_ON_GPU("a forked child has none");
  TANDEM_NEEDS_THREADS_IN_A_CHILD();
  ASSERT_TRUE(trains());
  std::vector<std::jthread> busy;
  for (int i = 0; i < 3; ++i) {
    busy.emplace_back([](std::stop_token stop) {
      while (!stop.stop_requested())
        trains();
    });
  }
  for (int i = 0; i < 30; ++i) {
    ASSERT_TRUE(test::is_true_in_a_child(trains)) << "child " << i;
  }
}

}  // namespace
}  // namespace tandem
