#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/autograd/parameter_store.h>
#include <tandem/kernels/optimizer.h>
#include <tandem/nn/container.h>
#include <tandem/nn/loss.h>
#include <tandem/nn/stateless.h>
#include <tandem/optim/adam.h>
#include <tandem/optim/clip.h>
#include <tandem/optim/sgd.h>
#include <tandem/tensor/cpu_allocator.h>
#include <tandem/tensor/factories.h>

#include "kernels/recorder.h"

// A training step consists only of its launches. Recorded once and run again on the same memory, these give the same
// bits. With StepState advanced, they are the next step. Captured steps rely on this.

namespace tandem {
namespace {

using test::ObserverScope;
using test::Recorder;
using ::testing::IsSupersetOf;

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kFreedMemoryIsKept = false;
#else
constexpr bool kFreedMemoryIsKept = true;
#endif

/// Takes all blocks from the caches, so that the test owns memory that a recorded step used temporarily.
class DrainedCaches {
 public:
  DrainedCaches() {
    // One size per class: multiples of 64; from 1024 on, four per doubling.
    for (std::size_t bytes = 64; bytes <= (std::size_t{1} << 20);
         bytes += bytes < 1024 ? 64 : std::bit_floor(bytes) / 4) {
      const std::uint64_t before = cpu_memory_stats().system_allocations;
      while (cpu_memory_stats().system_allocations == before) {
        blocks_.emplace_back(detail::cpu_allocate(bytes), bytes);
      }
    }
  }
  ~DrainedCaches() {
    for (const auto& [memory, bytes] : blocks_)
      detail::cpu_free(memory, bytes);
  }
  /// Overwrites the blocks with NaNs: a replay must not depend on what a step left there.
  void poison() const {
    for (const auto& [memory, bytes] : blocks_)
      std::memset(memory, 0xff, bytes);
  }
  std::size_t size() const { return blocks_.size(); }

 private:
  std::vector<std::pair<void*, std::size_t>> blocks_;
};

/// Saves the bytes of memory so that they can be restored.
class Snapshot {
 public:
  void add(void* memory, std::size_t bytes) {
    auto* first = static_cast<std::byte*>(memory);
    parts_.push_back({first, {first, first + bytes}});
  }
  void restore() const {
    for (const auto& [memory, bytes] : parts_)
      std::memcpy(memory, bytes.data(), bytes.size());
  }

 private:
  struct Part {
    std::byte* memory;
    std::vector<std::byte> bytes;
  };
  std::vector<Part> parts_;
};

struct Batch {
  Tensor x = rand({33, 20});
  Tensor y = randint(0, 7, {33});
};

/// The memory that persists between steps: parameters, gradients, and the optimiser's state.
template <class Kernel>
Snapshot persistent(const std::vector<Tensor>& parameters, const Recorder& recorder) {
  Snapshot snapshot;
  const auto store = ParameterStore::find(parameters[0]).store;
  for (const detail::View& view : {store->values(), store->gradients()}) {
    snapshot.add(view.data(), static_cast<std::size_t>(view.numel()) * item_size(view.dtype));
  }
  for (const auto& launch : recorder.launches()) {
    if (launch.name != Kernel::kName) continue;
    Kernel kernel;
    std::memcpy(&kernel, launch.args.data(), sizeof(kernel));
    const auto bytes = static_cast<std::size_t>(kernel.count) * item_size(kernel.dtype);
    if constexpr (std::is_same_v<Kernel, kernels::Sgd>) {
      snapshot.add(kernel.momentum_buffer, bytes);
    } else {
      snapshot.add(kernel.exp_avg, bytes);
      snapshot.add(kernel.exp_avg_sq, bytes);
    }
  }
  return snapshot;
}

template <class Kernel>
kernels::StepState& step_state(const Recorder& recorder) {
  const kernels::StepState* state = nullptr;
  for (const auto& launch : recorder.launches()) {
    if (launch.name != Kernel::kName) continue;
    Kernel kernel;
    std::memcpy(&kernel, launch.args.data(), sizeof(kernel));
    state = kernel.state;
  }
  return const_cast<kernels::StepState&>(*state);
}

std::vector<std::vector<float>> values_of(const std::vector<Tensor>& tensors) {
  std::vector<std::vector<float>> values;
  for (const Tensor& tensor : tensors)
    values.push_back(tensor.to_vector<float>());
  return values;
}

struct Model {
  nn::Sequential net{nn::Linear(20, 70), nn::ReLU(), nn::Dropout(0.3),
                     nn::Linear(70, 70), nn::ReLU(), nn::Linear(70, 7)};
  nn::CrossEntropyLoss criterion;
};

template <class Kernel, class Optimizer>
void expect_replay_is_the_step(Model& model, Optimizer& optimizer) {
  if (!kFreedMemoryIsKept) GTEST_SKIP() << "under the address sanitizer memory is really freed";
  Generator generator(77);
  const GeneratorScope draws(generator);
  const std::vector<Tensor> parameters = model.net.parameters();
  Batch batch;
  const Batch other;  // made before recording; later it might lie in memory that a replay writes
  Tensor loss;
  const auto step = [&] {
    optimizer.zero_grad();
    loss = nn::cross_entropy(model.net(batch.x), batch.y) * 2;
    loss.backward();
    optim::clip_grad_norm_(parameters, 0.5);
    optimizer.step();
  };
  for (int warm_up = 0; warm_up < 2; ++warm_up)
    step();

  Recorder dry_run;  // only finds the optimiser's memory
  {
    const ObserverScope scope(&dry_run);
    step();
  }
  const Snapshot before = persistent<Kernel>(parameters, dry_run);
  const std::uint64_t blocks_before = generator.offset();
  Recorder recorder;
  {
    const ObserverScope scope(&recorder);
    step();
  }
  EXPECT_THAT(recorder.names(),
              IsSupersetOf({"fill", "matmul", "dropout", "cross_entropy", "rescale_gradient", "dropout_grad",
                            "pointwise", "reduce", "squared_norm", "clip_by_norm", Kernel::kName}));
  const std::uint64_t blocks = generator.offset() - blocks_before;
  const auto weights = values_of(parameters);
  const float* recorded_loss = loss.data<float>();
  const float loss_value = *recorded_loss;

  // Take the next eager step, on other data and with another learning rate.
  kernels::StepState& state = step_state<Kernel>(recorder);
  const kernels::StepState state_now = state;
  const auto x_now = batch.x.template to_vector<float>();
  const auto y_now = batch.y.template to_vector<std::int64_t>();
  const std::uint64_t next_draw = blocks_before + blocks;
  generator.set_offset(next_draw);
  batch.x.copy_(other.x);
  batch.y.copy_(other.y);
  optimizer.set_learning_rate(0.03);
  step();
  const auto next_weights = values_of(parameters);
  const float next_loss = loss.item<float>();
  loss = Tensor();  // no tensor may stay in memory that a replay writes

  const DrainedCaches caches;
  EXPECT_GT(caches.size(), 0u);
  for (int round = 0; round < 3; ++round) {
    caches.poison();
    before.restore();
    state = state_now;
    auto& random = const_cast<kernels::StepState&>(*generator.state());
    random.random_offset = 0;
    std::memcpy(batch.x.template mutable_data<float>(), x_now.data(), x_now.size() * sizeof(float));
    std::memcpy(batch.y.template mutable_data<std::int64_t>(), y_now.data(), y_now.size() * sizeof(std::int64_t));
    recorder.replay();
    ASSERT_EQ(*recorded_loss, loss_value) << "round " << round;
    ASSERT_EQ(values_of(parameters), weights) << "round " << round;

    caches.poison();
    state.step += 1;
    state.learning_rate = 0.03;
    random.random_offset = blocks;
    batch.x.copy_(other.x);
    batch.y.copy_(other.y);
    recorder.replay();
    ASSERT_EQ(*recorded_loss, next_loss) << "round " << round;
    ASSERT_EQ(values_of(parameters), next_weights) << "round " << round;
    random.random_offset = 0;
  }
}

TEST(TrainingStepReplay, IsTheSameStepAndThenTheNextWithSgd) {
  manual_seed(5);
  Model model;
  optim::SGD optimizer(model.net.parameters(), {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true});
  expect_replay_is_the_step<kernels::Sgd>(model, optimizer);
}

TEST(TrainingStepReplay, IsTheSameStepAndThenTheNextWithAdam) {
  manual_seed(5);
  Model model;
  optim::AdamW optimizer(model.net.parameters(), {.lr = 0.01});
  expect_replay_is_the_step<kernels::Adam>(model, optimizer);
}

}  // namespace
}  // namespace tandem
