#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "parallel/models.h"

// The programs of docs/process-groups.md and docs/distributed.md.

namespace tandem::test {
namespace {

constexpr int kSteps = 20;

Mlp seeded_model() { return seeded<Mlp>(); }

// Of each batch the rank's half, on the device of the calling thread.
std::vector<std::pair<Tensor, Tensor>> half_batches(int rank) {
  const Batch batch = batch_of(16);
  return {kSteps, {batch.x.narrow(0, 8 * rank, 8), batch.y.narrow(0, 8 * rank, 8)}};
}

Mlp trained_alone() {
  Mlp model = seeded_model();
  const Batch batch = batch_of(16);
  optim::SGD sgd(model.parameters(), {.lr = 0.1});
  for (int step = 0; step < kSteps; ++step) {
    sgd.zero_grad();
    nn::cross_entropy(model(batch.x), batch.y).backward();
    sgd.step();
  }
  return model;
}

void train_rank(Mlp& trained) {
  Mlp model = seeded_model();
  parallel::DistributedDataParallel ddp(model);
  optim::SGD sgd(model.parameters(), {.lr = 0.1});
  for (const auto& [x, y] : half_batches(parallel::get_rank())) {
    sgd.zero_grad();
    nn::cross_entropy(ddp(x), y).backward();  // gradients are the mean over the ranks
    sgd.step();
  }
  trained = std::move(model);
}

void expect_trained_as(const Mlp& alone, const std::vector<Mlp>& trained) {
  for (const Mlp& model : trained) {
    for (std::size_t p = 0; p < model.parameters().size(); ++p) {
      EXPECT_LT(difference(model.parameters()[p].to(Device("cpu:0")), alone.parameters()[p]), 1e-12);
    }
  }
}

void expect_trained_as_alone(const std::vector<Mlp>& trained) { expect_trained_as(trained_alone(), trained); }

TEST(DdpDocs, TwoRanksTrainAsOneDeviceDoes) {
  std::vector<Mlp> trained(2);
  parallel::spawn(2, [&](int rank) { train_rank(trained[static_cast<std::size_t>(rank)]); });
  expect_trained_as_alone(trained);
}

// 19 rows on two ranks: batches of 4, 4 and 2 rows on one, 4, 4 and 1 on the other.
void train_rank_on_all_rows(Mlp& trained) {
  const Batch all = batch_of(19);
  const data::TensorDataset set(all.x, all.y);
  Mlp model = seeded_model();
  optim::SGD sgd(model.parameters(), {.lr = 0.1});
  parallel::DistributedDataParallel ddp(model);
  data::DataLoader loader(
      set, {.batch_size = 4,
            .sampler = std::make_shared<parallel::DistributedSampler>(
                set, parallel::DistributedSamplerOptions{.shuffle = false, .exact = true})});  // every row once
  for (int epoch = 0; epoch < 3; ++epoch) {
    parallel::Join join(ddp);
    for (const auto& [x, y] : loader) {
      sgd.zero_grad();
      nn::cross_entropy(ddp(x), y).backward();  // the mean over the samples of all ranks
      sgd.step();
    }
    join.finish([&] { sgd.step(); });  // for the ranks that still have input
  }
  trained = std::move(model);
}

TEST(DdpDocs, TwoRanksTrainOnAllRowsAsOneDeviceDoes) {
  std::vector<Mlp> trained(2);
  parallel::spawn(2, [&](int rank) { train_rank_on_all_rows(trained[static_cast<std::size_t>(rank)]); });
  Mlp alone = seeded_model();
  const Batch all = batch_of(19);
  optim::SGD sgd(alone.parameters(), {.lr = 0.1});
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (int row = 0; row < 19; row += 8) {
      const int rows = std::min(8, 19 - row);
      sgd.zero_grad();
      nn::cross_entropy(alone(all.x.narrow(0, row, rows)), all.y.narrow(0, row, rows)).backward();
      sgd.step();
    }
  }
  expect_trained_as(alone, trained);
}

void train_with_shared_updates(Mlp& trained) {
  Mlp model = seeded_model();
  parallel::DistributedDataParallel ddp(model, {.shard = parallel::Shard::optimizer});
  optim::Adam adam(model.parameters(), {.lr = 0.01});
  for (const auto& [x, y] : half_batches(parallel::get_rank())) {
    adam.zero_grad();
    nn::cross_entropy(ddp(x), y).backward();  // this rank gets the mean of its part of the gradients
    adam.step();                              // updates that part, and gets the others from the other ranks
  }
  trained = std::move(model);
}

void train_with_parameters_in_parts(Mlp& trained) {
  Mlp model = seeded_model();
  parallel::DistributedDataParallel ddp(model, {.bucket_cap_mb = 1, .shard = parallel::Shard::parameters});
  optim::Adam adam(model.parameters(), {.lr = 0.01});
  for (const auto& [x, y] : half_batches(parallel::get_rank())) {
    adam.zero_grad();
    nn::cross_entropy(ddp(x), y).backward();  // gathers the parameters of each bucket twice, and drops them
    adam.step();                              // updates this rank's part, and sends nothing
  }
  const auto whole = ddp.whole_parameters();  // all ranks: from here on the model can be read and called itself
  trained = seeded_model();
  trained.load_state_dict(model.state_dict());
}

class DdpDocsOfParts : public testing::TestWithParam<void (*)(Mlp&)> {};
INSTANTIATE_TEST_SUITE_P(All, DdpDocsOfParts,
                         testing::Values(&train_with_shared_updates, &train_with_parameters_in_parts));

TEST_P(DdpDocsOfParts, TwoRanksTrainAsOneDevice) {
  std::vector<Mlp> trained(2);
  parallel::spawn(2, [&](int rank) { GetParam()(trained[static_cast<std::size_t>(rank)]); });
  Mlp alone = seeded_model();
  const Batch batch = batch_of(16);
  optim::Adam adam(alone.parameters(), {.lr = 0.01});
  for (int step = 0; step < kSteps; ++step) {
    adam.zero_grad();
    nn::cross_entropy(alone(batch.x), batch.y).backward();
    adam.step();
  }
  expect_trained_as(alone, trained);
}

TEST(ProcessGroupDocs, TwoRanksTrainAsOneDeviceDoes) {
  std::vector<Mlp> trained(2);
  parallel::spawn(2, [&](parallel::ProcessGroup& group) {
    Mlp model = seeded_model();
    for (const Tensor& parameter : model.parameters()) {
      group.broadcast(parameter, 0);  // all begin as rank 0 does
    }
    optim::SGD sgd(model.parameters(), {.lr = 0.1});
    for (const auto& [x, y] : half_batches(group.rank())) {
      sgd.zero_grad();
      nn::cross_entropy(model(x), y).backward();
      for (const Tensor& parameter : model.parameters()) {
        group.all_reduce(parameter.grad(), parallel::ReduceOp::avg);
      }
      sgd.step();  // the same step on every rank: that of one device with the whole batch
    }
    trained[static_cast<std::size_t>(group.rank())] = std::move(model);
  });
  expect_trained_as_alone(trained);
}

}  // namespace
}  // namespace tandem::test
