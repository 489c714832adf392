#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "parallel/models.h"
#include "support/message.h"

namespace tandem::parallel {
namespace {

using test::cpus;
using test::message_of;
using test::Mlp;
using test::seeded;
using ::testing::AllOf;
using ::testing::HasSubstr;

Tensor batch(std::int64_t rows = 4) { return ones({rows, 6}, {.dtype = DType::f64}); }

template <class Output>
concept CanBeGathered = requires(std::vector<Output> outputs) { gather(outputs, Device()); };
static_assert(CanBeGathered<Tensor>);
static_assert(!CanBeGathered<double>, "a number per replica has no meaning for the whole batch");

TEST(DataParallelErrors, AModuleOnAnotherDevice) {
  Mlp model = seeded<Mlp>();
  DataParallel dp(model, {"cpu:1", "cpu:2"});
  EXPECT_EQ(message_of<DeviceError>([&] { dp(batch()); }),
            "DataParallel: parameter 'fc1.weight' is on cpu:0, the first device is cpu:1: move the module there, "
            "model.to(\"cpu:1\")");
}

TEST(DataParallelErrors, ABufferOnAnotherDevice) {
  nn::BatchNorm1d norm(6);
  norm.to("cpu:1");
  DataParallel dp(norm, {"cpu:1", "cpu:0"});
  autograd::replace_elements(norm.get_buffer("running_var"), ones({6}));
  EXPECT_EQ(message_of<DeviceError>([&] { dp(batch().to(DType::f32)); }),
            "DataParallel: buffer 'running_var' is on cpu:0, the first device is cpu:1: move the module there, "
            "model.to(\"cpu:1\")");
}

TEST(DataParallelErrors, InReplicasNameThemAndLeaveTheModuleUsable) {
  Mlp model = seeded<Mlp>();
  DataParallel dp(model, cpus(2));
  EXPECT_EQ(message_of<ShapeError>([&] { dp(ones({4, 5}, {.dtype = DType::f64})); }),
            "Linear 'fc1': input [2, 5] has 5 features, layer expects 6 (weight [8, 6])\n  in replica 0 of 2, on "
            "cpu:0");
  EXPECT_EQ(last_failure()->index, 0);
  model.to("cpu:3");
  EXPECT_THROW(dp(batch()), DeviceError);
  EXPECT_FALSE(last_failure().has_value()) << "of the last call, in which no replica was to blame";
  model.to("cpu:0");
  dp(batch()).sum().backward();
  EXPECT_TRUE(model.fc1.weight.grad().defined());
}

struct Scaled : nn::Module<Scaled> {
  nn::Linear fc = child("fc", nn::Linear(6, 1));
  Buffer scale = buffer("scale", ones({1}));
  Tensor forward(const Tensor& x) const { return fc(x) * scale; }
};

// Its gradient would be that of replica 0.
TEST(DataParallelErrors, ABufferThatRequiresAGradient) {
  Scaled model;
  model.scale.requires_grad_();
  DataParallel dp(model, cpus(3));
  EXPECT_EQ(
      message_of<ConfigError>([&] { dp(ones({6, 6})); }),
      "DataParallel: buffer 'scale' requires a gradient, which would be that of replica 0 alone: register it as a "
      "parameter, or keep it out of the graph (requires_grad_(false), detach())");
  EXPECT_EQ(dp(ones({1, 6})).shape(), Shape({1, 1})) << "one replica computes: the module itself";
}

struct Writing : nn::Module<Writing> {
  nn::Linear fc = child("fc", nn::Linear(6, 1));
  Tensor forward(const Tensor& x) const {
    Tensor same = x;
    return fc(same.mul_(2));
  }
};

TEST(DataParallelErrors, AnInputThatIsChangedInPlace) {
  Writing model;
  const std::vector<Device> twice{"cpu:0", "cpu:0"};
  for (const std::vector<Device>& devices : {cpus(2), twice}) {
    DataParallel dp(model, devices, {.allow_duplicate_devices = true});
    const Tensor x = ones({4, 6});
    EXPECT_THAT(message_of<AutogradError>([&] { dp(x); }),
                AllOf(HasSubstr("mul_: "), HasSubstr("is memory of cpu"), HasSubstr("that a replica only reads")));
    EXPECT_THROW(dp.loss([](const Tensor& out, const Tensor& y) { return nn::mse_loss(out, y); }, x, ones({4, 1})),
                 AutogradError);
    EXPECT_EQ(x.sum().item(), 24) << "nothing was changed";
    const Tensor row = ones({1, 6});  // one part, which is the caller's own memory
    dp(row);
    EXPECT_EQ(row.sum().item(), 12);
  }
}

TEST(DataParallelErrors, AScalarInputThatIsChangedInPlace) {
  struct Scaling : nn::Module<Scaling> {
    nn::Linear fc = child("fc", nn::Linear(6, 1));
    Tensor forward(const Tensor& x, Tensor factor) const { return fc(x) * factor.mul_(2); }
  } model;
  DataParallel dp(model, cpus(2));
  const Tensor factor = full({}, 3);
  EXPECT_THROW(dp(ones({4, 6}), factor), AutogradError);
  EXPECT_EQ(factor.item(), 3);
}

// A struct without members() is refused where it is compiled.
struct Untied {
  std::string source;
  Tensor image;
};
struct WithItsMembers : Untied {
  friend auto members(WithItsMembers& batch) { return std::tie(batch.source, batch.image); }
};
struct Settings {
  std::string name;
  double rate;
};
static_assert(parallel::detail::lacks_members<Untied>());
static_assert(!parallel::detail::lacks_members<WithItsMembers>());
static_assert(!parallel::detail::lacks_members<Settings>());
static_assert(parallel::detail::any_lacks_members<std::tuple<Tensor, std::reference_wrapper<const Untied>>>());

TEST(DataParallelErrors, WithinAReplica) {
  Mlp inner = seeded<Mlp>();
  DataParallel nested(inner, cpus(2));
  Mlp outer = seeded<Mlp>();
  Replicas replicas = replicate(outer, cpus(2));
  const core::FrameScope active(replicas.frame(1));
  EXPECT_EQ(message_of<ConfigError>([&] { nested(batch()); }),
            "DataParallel: called within a replica of another one; wrap the outer module alone");
}

struct Forgetful : nn::Module<Forgetful> {
  nn::Linear fc = child("fc", nn::Linear(6, 3));
  Tensor forward(const Tensor& x) const {
    const_cast<Forgetful*>(this)->zero_grad();
    return fc(x);
  }
};

TEST(DataParallelErrors, ZeroGradInAReplica) {
  Forgetful model = seeded<Forgetful>();
  DataParallel dp(model, cpus(2));
  EXPECT_EQ(message_of<ConfigError>([&] { dp(batch()); }),
            "zero_grad: called within replica 0 of 2 of this module, while the others compute; call it outside of "
            "forward()\n  in replica 0 of 2, on cpu:0");
}

struct Uneven : nn::Module<Uneven> {
  nn::Linear fc = child("fc", nn::Linear(6, 3));
  std::vector<Tensor> forward(const Tensor& x) const {
    return std::vector<Tensor>(static_cast<std::size_t>(x.size(0)), fc(x));
  }
};

TEST(DataParallelErrors, OutputsThatAreBuiltDifferently) {
  Uneven model = seeded<Uneven>();
  DataParallel dp(model, cpus(2));
  EXPECT_NE(message_of<ConfigError>([&] { dp(batch(5)); }).find("built differently"), std::string::npos);
}

TEST(DataParallelErrors, DevicesThatAreNotThere) {
  Mlp model = seeded<Mlp>();
  EXPECT_THROW(DataParallel(model, {"cpu:0", "cpu:99"}), DeviceError);
  EXPECT_THROW(DataParallel(model, {"cpu:0", "cpu:0"}), ConfigError);
}

}  // namespace
}  // namespace tandem::parallel
