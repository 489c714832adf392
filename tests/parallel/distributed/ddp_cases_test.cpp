#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/parallel/comm/comm_queue.h>
#include <tandem/tandem.h>

#include "parallel/models.h"
#include "parallel/ranks.h"

// Models, training loops and other uses of groups around DistributedDataParallel.

namespace tandem::test {
namespace {

using parallel::DistributedDataParallel;
using parallel::ProcessGroup;

/// The single element of a gradient, which is the mean over the ranks on every rank.
float grad_of(const Tensor& parameter) { return parameter.grad().item<float>(); }

struct Mixed : nn::Module<Mixed> {
  nn::Linear single = child("single", nn::Linear(2, 2));
  nn::Linear wide = child("wide", nn::Linear(2, 2));
  nn::Linear more = child("more", nn::Linear(2, 1));
  Mixed() { wide.to(DType::f64); }
  Tensor forward(const Tensor& x) const { return more(wide(single(x).to(DType::f64)).to(DType::f32)); }
};

TEST(DdpModels, OfSeveralDtypes) {
  manual_seed(4);
  Mixed alone;
  const Tensor x = randn({4, 2});
  alone(x).sum().backward();
  as_ranks(2, [&](ProcessGroup& group) {
    manual_seed(4);
    Mixed model;
    DistributedDataParallel ddp(model, {.bucket_cap_mb = 1e-6});
    const Tensor mine = x.narrow(0, 2 * group.rank(), 2).to(model.single.weight.device());
    (ddp(mine).sum() * 2.0).backward();
    for (std::size_t p = 0; p < model.parameters().size(); ++p) {
      EXPECT_LE(difference(model.parameters()[p].grad(), alone.parameters()[p].grad()), 1e-6);
    }
  });
}

struct Tied : nn::Module<Tied> {
  nn::Linear in = child("in", nn::Linear(2, 2));
  nn::Linear out = child("out", nn::Linear(2, 2));
  Tied() { tie(out.weight, in.weight); }
  Tensor forward(const Tensor& x) const { return out(in(x)); }
};

TEST(DdpModels, WithTiedParametersReduceThemOnce) {
  manual_seed(4);
  Tied alone;
  const Tensor x = randn({4, 2});
  alone(x).sum().backward();
  as_ranks(2, [&](ProcessGroup& group) {
    manual_seed(4);
    Tied model;
    DistributedDataParallel ddp(model);
    const Tensor mine = x.narrow(0, 2 * group.rank(), 2).to(model.in.weight.device());
    (ddp(mine).sum() * 2.0).backward();
    EXPECT_LE(difference(model.in.weight.grad(), alone.in.weight.grad()), 1e-6);
  });
}

// A model with parts on two devices, for a model that is too large for one.
struct Split : nn::Module<Split> {
  nn::Linear first = child("first", nn::Linear(2, 2));
  nn::Linear second = child("second", nn::Linear(2, 1));
  Device device;
  explicit Split(Device other) : device(other) { second.to(other); }
  Tensor forward(const Tensor& x) const { return second(relu(first(x)).to(device)); }
};

TEST(DdpModels, OnSeveralDevices) {
  if (core::thread_state().device.type == DeviceType::cuda) {
    GTEST_SKIP() << "one GPU";
  }
  manual_seed(4);
  Split alone("cpu:1");
  const Tensor x = randn({4, 2});
  alone(x).sum().backward();
  as_ranks(2, [&](ProcessGroup& group) {
    manual_seed(4);
    Split model(Device(DeviceType::cpu, 2 + group.rank()));
    DistributedDataParallel ddp(model);
    const Tensor mine = x.narrow(0, 2 * group.rank(), 2).to(model.first.weight.device());
    (ddp(mine).sum() * 2.0).backward();
    for (std::size_t p = 0; p < model.parameters().size(); ++p) {
      EXPECT_LE(difference(model.parameters()[p].grad(), alone.parameters()[p].grad()), 1e-6);
    }
  });
}

// Each rank has two devices and splits its batch between them.
struct Halves : nn::Module<Halves> {
  Mlp body = child("body", seeded<Mlp>());
  std::vector<Device> devices;
  Tensor forward(const Tensor& x) const { return parallel::data_parallel(body, x, devices); }
};

TEST(DdpModels, ThatUseDataParallelWithin) {
  if (core::thread_state().device.type == DeviceType::cuda) {
    GTEST_SKIP() << "one GPU";
  }
  Mlp alone = seeded<Mlp>();
  const Batch whole = batch_of(16);
  nn::cross_entropy(alone(whole.x), whole.y).backward();
  as_ranks(2, [&](ProcessGroup& group) {
    Halves model;
    const Device own = model.body.fc1.weight.device();
    model.devices = {own, Device(DeviceType::cpu, 2 + group.rank())};
    DistributedDataParallel ddp(model);
    const Tensor x = whole.x.narrow(0, 8 * group.rank(), 8).to(own);
    const Tensor y = whole.y.narrow(0, 8 * group.rank(), 8).to(own);
    nn::cross_entropy(ddp(x), y).backward();
    for (std::size_t p = 0; p < alone.parameters().size(); ++p) {
      EXPECT_LE(difference(model.parameters()[p].grad(), alone.parameters()[p].grad()), 1e-12);
    }
  });
}

TEST(DdpModels, InDifferentWrappersOfOneLoop) {
  as_ranks(2, [](ProcessGroup& group) {
    nn::Linear a(1, 1);
    nn::Linear b(1, 1);
    DistributedDataParallel first(a);
    DistributedDataParallel second(b);
    const double rank = group.rank();
    // One backward pass through both wrappers: the other wrapper's gradients end the pass.
    (first(full({1, 1}, rank)) + second(full({1, 1}, 10 * rank))).sum().backward();
    EXPECT_EQ(grad_of(a.weight), 0.5F);
    EXPECT_EQ(grad_of(b.weight), 5.0F);
  });
}

TEST(DdpStart, GivesEverybodyTheStateOfRankZero) {
  as_ranks(2, [](ProcessGroup& group) {
    for (const bool sync : {true, false}) {
      nn::BatchNorm1d norm(2);
      {
        const NoGradGuard no_grad;
        norm.weight.fill_(1.0 + group.rank());
        norm.get_buffer("running_mean").fill_(5.0 + group.rank());
      }
      DistributedDataParallel ddp(norm, {.init_sync = sync});
      EXPECT_EQ(norm.weight.detach()[0].item<float>(), sync ? 1.0F : 1.0F + static_cast<float>(group.rank()));
      EXPECT_EQ(norm.get_buffer("running_mean")[0].item<float>(),
                sync ? 5.0F : 5.0F + static_cast<float>(group.rank()));
    }
  });
}

TEST(DdpBuffers, StayARanksOwnWhereAsked) {
  as_ranks(2, [](ProcessGroup& group) {
    nn::BatchNorm1d norm(1);
    DistributedDataParallel ddp(norm, {.broadcast_buffers = false});
    ddp(full({4, 1}, 10.0 * group.rank()) + randn({4, 1}) * 0.01).sum().backward();
    EXPECT_NEAR(norm.get_buffer("running_mean").item<float>(), static_cast<float>(group.rank()), 0.1F);
  });
}

TEST(DdpBuffers, TakeTwoForwardPassesInOneBackward) {
  as_ranks(2, [](ProcessGroup&) {
    nn::BatchNorm1d norm(1);
    DistributedDataParallel ddp(norm);
    (ddp(randn({4, 1})) * ddp(randn({4, 1}))).sum().backward();
    EXPECT_EQ(norm.get_buffer("num_batches_tracked").item<std::int64_t>(), 2);
  });
}

TEST(DdpNoSync, IsAMatterOfTheForwardPass) {
  as_ranks(2, [](ProcessGroup& group) {
    nn::Linear layer(1, 1);
    DistributedDataParallel ddp(layer);
    const float rank = static_cast<float>(group.rank());
    const auto forward = [&] { return ddp(full({1, 1}, rank)).sum(); };
    Tensor loss;
    {
      const auto local = ddp.no_sync();
      loss = forward();
    }
    loss.backward();
    EXPECT_EQ(grad_of(layer.weight), rank);
    layer.zero_grad();
    loss = forward();
    {
      const auto local = ddp.no_sync();
      const auto again = ddp.no_sync();
      loss.backward();
    }
    EXPECT_EQ(grad_of(layer.weight), 0.5F);
    layer.zero_grad();
    forward().backward();  // after the scopes, passes are reduced again
    EXPECT_EQ(grad_of(layer.weight), 0.5F);
  });
}

struct TwoLines : nn::Module<TwoLines> {
  nn::Linear left = child("left", nn::Linear(1, 1));
  nn::Linear right = child("right", nn::Linear(1, 1));
  std::pair<Tensor, Tensor> forward(const Tensor& x) const { return {left(x), right(x)}; }
};

TEST(DdpLoop, TakesABackwardOfEachOutput) {
  as_ranks(2, [](ProcessGroup& group) {
    TwoLines model;
    DistributedDataParallel ddp(model, {.find_unused_parameters = true});
    const auto [left, right] = ddp(full({1, 1}, group.rank() + 1.0));
    left.sum().backward();
    EXPECT_EQ(grad_of(model.left.weight), 1.5F);
    right.sum().backward();
    EXPECT_EQ(grad_of(model.left.weight), 1.5F);
    EXPECT_EQ(grad_of(model.right.weight), 1.5F);
  });
}

TEST(DdpLoop, TakesAGraphThatChangesFromStepToStepAndFromRankToRank) {
  as_ranks(3, [](ProcessGroup& group) {
    TwoLines model;
    DistributedDataParallel ddp(model, {.bucket_cap_mb = 1e-6, .find_unused_parameters = true});
    for (int step = 0; step < 6; ++step) {
      model.zero_grad();
      const auto [left, right] = ddp(ones({1, 1}));
      ((step + group.rank()) % 3 == 0 ? left : right).sum().backward();
      EXPECT_EQ(grad_of(model.left.weight), 1.0F / 3);
      EXPECT_EQ(grad_of(model.right.weight), 2.0F / 3);
    }
  });
}

TEST(DdpLoop, EvaluatesOnOneRankInTheMiddleOfTraining) {
  as_ranks(2, [](ProcessGroup& group) {
    nn::BatchNorm1d norm(1);
    DistributedDataParallel ddp(norm);
    for (int step = 0; step < 3; ++step) {
      ddp(randn({4, 1})).sum().backward();
      if (group.rank() == 0) {
        norm.eval();
        const NoGradGuard no_grad;
        ddp(randn({2, 1}));
        norm.train();
      }
      if (group.rank() == 1) {
        ddp(randn({4, 1}));  // a forward pass without a backward pass
      }
    }
  });
}

TEST(DdpLoop, SkipsAStepOnAllRanksForAnInfiniteGradientOfOne) {
  as_ranks(2, [](ProcessGroup& group) {
    nn::Linear layer(1, 1);
    DistributedDataParallel ddp(layer);
    optim::SGD sgd(layer.parameters(), {.lr = 0.1});
    optim::GradScaler scaler({.init_scale = 8.0});
    const float before = layer.weight.detach().item<float>();
    const double x = group.rank() == 1 ? std::numeric_limits<double>::infinity() : 1.0;
    scaler.scale(ddp(full({1, 1}, x)).sum()).backward();
    scaler.step(sgd);
    scaler.update();
    EXPECT_EQ(layer.weight.detach().item<float>(), before);
    EXPECT_EQ(scaler.get_scale(), 4.0);
  });
}

TEST(DdpLoop, LeavesNoTraceInWhatIsSaved) {
  as_ranks(1, [](ProcessGroup&) {
    Mlp model = seeded<Mlp>();
    DistributedDataParallel ddp(model);
    Mlp other;
    other.to(DType::f64);
    other.load_state_dict(ddp.module().state_dict());
    EXPECT_EQ(other.fc1.weight.to_vector<double>(), model.fc1.weight.to_vector<double>());
    EXPECT_EQ(ddp.module().state_dict().begin()->first.find("module."), std::string::npos);
  });
}

TEST(DdpBuckets, AreOneWhereThereIsNoWireAndElseOfWhatIsMeasured) {
  struct Wide : nn::Module<Wide> {
    nn::Linear a = child("a", nn::Linear(512, 512, {.bias = false}));  // 1 MiB each
    nn::Linear b = child("b", nn::Linear(512, 512, {.bias = false}));
    nn::Linear c = child("c", nn::Linear(512, 512, {.bias = false}));
    Tensor forward(const Tensor& x) const { return c(b(a(x))); }
  };
  as_ranks(2, [](ProcessGroup& group) {
    Wide model;
    DistributedDataParallel ddp(model);
    std::vector<std::int64_t> sizes;
    ddp.register_comm_hook([&](ProcessGroup& ranks, const parallel::GradBucket& bucket) -> std::function<void()> {
      sizes.push_back(bucket.gradients.numel());
      parallel::Work work = ranks.all_reduce(bucket.gradients, parallel::ReduceOp::avg, true);
      return [work]() mutable { work.wait(); };
    });
    ddp(ones({1, 512})).sum().backward();
    constexpr std::int64_t kLayer = 512 * 512;
    if (group.queue()->backend().shares_memory()) {
      EXPECT_THAT(sizes, testing::ElementsAre(3 * kLayer));
    } else {
      EXPECT_EQ(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}), 3 * kLayer);
      const Tensor first = full({1}, 1.0 * static_cast<double>(sizes.front()));
      group.all_reduce(first, parallel::ReduceOp::avg);
      EXPECT_EQ(first.item(), static_cast<double>(sizes.front()));  // equal on all ranks
    }
  });
}

TEST(DdpErrors, ModelsThatDifferInNamesDtypesStridesOrBuffers) {
  struct Named : nn::Module<Named> {
    nn::Linear layer;
    explicit Named(const std::string& name) : layer(child(name, nn::Linear(2, 2))) {}
    Tensor forward(const Tensor& x) const { return layer(x); }
  };
  const auto text_of = [](const std::function<void(bool odd)>& wrap) {
    std::vector<std::string> texts(2);
    as_ranks(2, [&](ProcessGroup& group) {
      texts[static_cast<std::size_t>(group.rank())] = message_of<ConfigError>([&] { wrap(group.rank() == 1); });
    });
    EXPECT_EQ(texts[0], texts[1]);
    return texts[0];
  };
  EXPECT_THAT(text_of([](bool odd) {
                Named model(odd ? "head" : "fc");
                DistributedDataParallel ddp(model);
              }),
              testing::HasSubstr("Rank 0 has parameter 'fc.weight': f32 [2, 2], strides [2, 1], trained; rank 1 has "
                                 "parameter 'head.weight': f32 [2, 2], strides [2, 1], trained"));
  EXPECT_THAT(text_of([](bool odd) {
                nn::Linear model(2, 2);
                model.to(odd ? DType::f64 : DType::f32);
                DistributedDataParallel ddp(model);
              }),
              testing::HasSubstr("Rank 0 has parameter 'weight': f32 [2, 2], strides [2, 1], trained; rank 1 has "
                                 "parameter 'weight': f64 [2, 2]"));
  EXPECT_THAT(text_of([](bool odd) {
                nn::BatchNorm1d model(2, {.track_running_stats = !odd});
                DistributedDataParallel ddp(model);
              }),
              testing::HasSubstr("Rank 0 has buffer 'running_mean': f32 [2], strides [1]; rank 1 has nothing more"));
}

TEST(DdpErrors, BucketsThatDiffer) {
  std::vector<std::string> texts(2);
  as_ranks(2, [&](ProcessGroup& group) {
    Mlp model = seeded<Mlp>();
    texts[static_cast<std::size_t>(group.rank())] = message_of<ConfigError>(
        [&] { DistributedDataParallel ddp(model, {.bucket_cap_mb = group.rank() == 0 ? 1e-6 : 25}); });
  });
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_THAT(texts[0], testing::HasSubstr("Rank 0 has bucket_cap_mb = 1e-06, "));
}

TEST(DdpErrors, ABucketOfLessThanNothing) {
  as_ranks(1, [](ProcessGroup&) {
    nn::Linear layer(2, 1);
    EXPECT_EQ(message_of<ConfigError>([&] { DistributedDataParallel ddp(layer, {.bucket_cap_mb = -1}); }),
              "DistributedDataParallel: bucket_cap_mb is -1; expected 0 or more");
  });
}

// PyTorch's way to ask for the most overlap.
TEST(DdpModels, ABucketForEachGradient) {
  as_ranks(2, [](ProcessGroup&) {
    Mlp model = seeded<Mlp>();
    DistributedDataParallel ddp(model, {.bucket_cap_mb = 0});
    std::size_t buckets = 0;
    ddp.register_comm_hook([&](ProcessGroup& ranks, const parallel::GradBucket& bucket) -> std::function<void()> {
      ++buckets;
      parallel::Work work = ranks.all_reduce(bucket.gradients, parallel::ReduceOp::avg, true);
      return [work]() mutable { work.wait(); };
    });
    nn::cross_entropy(ddp(test::batch_of(4).x), test::batch_of(4).y).backward();
    EXPECT_EQ(buckets, model.parameters().size());
  });
}

TEST(DdpErrors, AnExceptionInOneForwardPassEndsTheOthers) {
  std::string text;
  as_ranks(2, [&](ProcessGroup& group) {
    const auto own = group.new_group({0, 1});
    nn::Linear layer(2, 1);
    DistributedDataParallel ddp(layer, {.process_group = own.get()});
    if (group.rank() == 1) {
      EXPECT_THROW(ddp(ones({1, 3})), ShapeError);
      own->abort("its forward pass failed");
    } else {
      text = message_of<CommError>([&] { ddp(ones({1, 2})).sum().backward(); });
    }
    group.barrier();
  });
  EXPECT_THAT(text, testing::HasSubstr("aborted by rank 1: its forward pass failed"));
}

}  // namespace
}  // namespace tandem::test
