#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/autograd/parameter.h>
#include <tandem/core/error.h>

#include "leaves.h"
#include "support/message.h"

// In-place ops that are recorded, and those that are rejected.

namespace tandem {
namespace {

using test::expect_gradient;
using test::leaf;
using test::message_of;
using test::values;
using ::testing::HasSubstr;

using Values = std::vector<double>;

struct Change {
  const char* name;
  void (*apply)(Tensor& target, const Tensor& other);
  bool uses_other;
};

const Change kRecorded[] = {
    {"add_", [](Tensor& t, const Tensor& o) { t.add_(o); }, true},
    {"sub_", [](Tensor& t, const Tensor& o) { t.sub_(o); }, true},
    {"mul_", [](Tensor& t, const Tensor& o) { t.mul_(o); }, true},
    {"div_", [](Tensor& t, const Tensor& o) { t.div_(o); }, true},
    {"copy_", [](Tensor& t, const Tensor& o) { t.copy_(o); }, true},
    {"operators", [](Tensor& t, const Tensor& o) { ((t += o) -= o * 3) *= o, t /= o + 1; }, true},
    {"add_scalar", [](Tensor& t, const Tensor&) { t.add_(2.5); }, false},
    {"sub_scalar", [](Tensor& t, const Tensor&) { t.sub_(2.5); }, false},
    {"mul_scalar", [](Tensor& t, const Tensor&) { t.mul_(2.5); }, false},
    {"div_scalar", [](Tensor& t, const Tensor&) { t.div_(2.5); }, false},
    {"fill_", [](Tensor& t, const Tensor&) { t.fill_(2.5); }, false},
    {"zero_", [](Tensor& t, const Tensor&) { t.zero_(); }, false},
};

class RecordedInPlace : public ::testing::TestWithParam<Change> {
 protected:
  void apply(Tensor& target, const Tensor& other) const { GetParam().apply(target, other); }
  // A loss that still depends on x after the change has erased the target.
  static Tensor loss(const Tensor& changed, const Tensor& x) { return changed * 3 + x; }
};

TEST_P(RecordedInPlace, OnAResultGivesRightGradients) {
  const auto fn = [this](const std::vector<Tensor>& in) {
    Tensor y = in[0] * 2;
    apply(y, in[1]);
    return loss(y, in[0]);
  };
  for (const Shape& other : {Shape{2, 3}, {3}, {2, 1}, {}}) {
    SCOPED_TRACE(to_string(other));
    expect_gradient(fn, {leaf({2, 3}), leaf(other, 0.5, 2, 8)});
    expect_gradient(fn, {leaf({2, 3}), values(other, 0.5, 2, 8)});
    if (GetParam().uses_other) {
      expect_gradient(fn, {values({2, 3}), leaf(other, 0.5, 2, 8)});
    }
  }
}

TEST_P(RecordedInPlace, OnPlainDataMakesItDepend) {
  if (!GetParam().uses_other) {
    Tensor y = values({2, 3});
    apply(y, {});
    EXPECT_FALSE(y.requires_grad());
    return;
  }
  expect_gradient(
      [this](const std::vector<Tensor>& in) {
        Tensor y = values({2, 3}, 0.5, 2, 9);
        apply(y, in[0]);
        return y * 3;
      },
      {leaf({3}, 0.5, 2, 8)});
}

TEST_P(RecordedInPlace, SeveralTimesInARow) {
  expect_gradient(
      [this](const std::vector<Tensor>& in) {
        Tensor y = in[0] * 2;
        for (int i = 0; i < 3; ++i) {
          apply(y, in[1]);
          y.add_(in[0]);
        }
        return loss(y, in[0]);
      },
      {leaf({2, 3}, 0.5, 2), leaf({3}, 0.5, 2, 8)});
}

TEST_P(RecordedInPlace, WithItself) {
  expect_gradient(
      [this](const std::vector<Tensor>& in) {
        Tensor y = in[0] * 2;
        apply(y, y);
        return loss(y, in[0]);
      },
      {leaf({3, 3}, 0.5, 2)});
}

TEST_P(RecordedInPlace, WithAViewOfItself) {
  if (std::string(GetParam().name) == "operators") {
    Tensor y = leaf({3, 3}, 0.5, 2) * 2;
    EXPECT_THROW(apply(y, y.t()), AutogradError) << "the second change uses a view that the first made out of date";
    return;
  }
  Tensor (*const views[])(const Tensor&) = {[](const Tensor& y) { return y.t(); }, [](const Tensor& y) { return y[1]; },
                                            [](const Tensor& y) { return y.narrow(1, 0, 1); }};
  for (const auto view : views) {
    expect_gradient(
        [&](const std::vector<Tensor>& in) {
          Tensor y = in[0] * 2;
          apply(y, view(y));
          return loss(y, in[0]);
        },
        {leaf({3, 3}, 0.5, 2)});
  }
}

INSTANTIATE_TEST_SUITE_P(Changes, RecordedInPlace, ::testing::ValuesIn(kRecorded),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(InPlace, ViewsMadeBeforehandCannotBeUsedAnyMore) {
  const Tensor a = leaf({4});
  Tensor y = a * 2;
  const Tensor view = y.narrow(0, 0, 2);
  const Tensor plain = y.detach();
  y.mul_(3.0);
  EXPECT_EQ(message_of<AutogradError>([&] { view * 2; }),
            "mul: an input [2] was changed in place through another view, or without being recorded, after it was "
            "computed by narrow (version 0, now 1); its gradient would be wrong. Change a copy (.clone()) instead");
  EXPECT_THROW(view.sum(), AutogradError);
  EXPECT_THROW(view[0].backward(), AutogradError);
  EXPECT_EQ((plain * a).to_vector<double>(), (y * a).to_vector<double>()) << "detach() is a constant with these values";
  expect_gradient(
      [](const std::vector<Tensor>& in) {
        Tensor z = in[0] * 2;
        z.mul_(3.0);
        return z.narrow(0, 0, 2) * z.narrow(0, 2, 2);  // views made after the change
      },
      {a});
}

TEST(InPlace, ChangesThatWereNotRecordedAreNoticedAtTheNextUse) {
  const Tensor a = leaf({4});
  const Tensor y = a * 2;
  {
    const NoGradGuard no_grad;
    Tensor handle = y;
    handle.mul_(3.0);
  }
  EXPECT_THAT(message_of<AutogradError>([&] { y.sum(); }),
              HasSubstr("sum: an input [4] was changed in place through another view, or without being recorded, after "
                        "it was computed by mul (version 0, now 1)"));
  Tensor z = a * 2;
  Tensor(z.detach()).fill_(5);
  EXPECT_THROW(z.sum(), AutogradError);
  EXPECT_THROW(z.backward(ones({4}, {.dtype = DType::f64})), AutogradError);
}

TEST(InPlace, OfALeafNeedsNoGrad) {
  Tensor a = leaf({2});
  const Values before = a.to_vector<double>();
  EXPECT_EQ(message_of<AutogradError>([&] { a.add_(1.0); }),
            "add_: a leaf [2] requires a gradient and is changed in place; do it under NoGradGuard");
  EXPECT_THROW(a.mul_(a), AutogradError);
  EXPECT_THROW(a.div_(2.0), AutogradError);
  EXPECT_THROW(a.copy_(zeros({2}, {.dtype = DType::f64})), AutogradError);
  EXPECT_THROW(a.fill_(1), AutogradError);
  EXPECT_THROW(a.zero_(), AutogradError);
  EXPECT_THROW(a.uniform_(), AutogradError);
  EXPECT_THROW(a.normal_(), AutogradError);
  EXPECT_EQ(a.to_vector<double>(), before) << "a refused change changes nothing";
  {
    const NoGradGuard no_grad;
    a.fill_(4);
  }
  EXPECT_TRUE(a.is_leaf());
  (a * a).sum().backward();
  EXPECT_EQ(a.grad().to_vector<double>(), (Values{8, 8}));
}

TEST(InPlace, RecordingAChangeOfAViewIsAnError) {
  const Tensor a = leaf({2, 3});
  Tensor y = a * 2;
  Tensor row = y[0];
  const Values before = y.to_vector<double>();
  const std::string expected =
      "mul_: recording a change in place of a view [3] is not supported; build the whole with cat() or stack(), or use "
      "NoGradGuard";
  EXPECT_EQ(message_of<AutogradError>([&] { row.mul_(2.0); }), expected);
  EXPECT_THROW(y.t().contiguous().t().add_(1.0), AutogradError);
  Tensor plain_row = values({2, 3})[0];
  EXPECT_EQ(message_of<AutogradError>([&] { plain_row.mul_(a[0]); }), expected);
  EXPECT_EQ(y.to_vector<double>(), before);
}

TEST(InPlace, ExpandedTensorsCannotBeWritten) {
  Tensor wide = zeros({3}).expand({2, 3});
  EXPECT_EQ(message_of<ShapeError>([&] { wide.add_(1.0); }),
            "add_: the tensor [2, 3] is expanded, several of its elements share memory; call .clone() first");
  EXPECT_THROW(wide.copy_(ones({2, 3})), ShapeError);
  EXPECT_THROW(wide.fill_(1), ShapeError);
  EXPECT_THROW(wide.mul_(ones({3})), ShapeError);
}

TEST(InPlace, WrongShapesDtypesAndDevicesAreErrorsThatChangeNothing) {
  Tensor t = zeros({2, 3});
  EXPECT_EQ(message_of<ShapeError>([&] { t.add_(zeros({4, 2, 3})); }),
            "add_: [4, 2, 3] does not broadcast to the tensor [2, 3] that is changed in place");
  EXPECT_THROW(t.add_(zeros({2})), ShapeError);
  EXPECT_THROW(t.copy_(zeros({3, 2})), ShapeError);
  EXPECT_THROW(t.mul_(zeros({3}, {.device = "cpu:1"})), DeviceError);
  EXPECT_THROW(tensor({1, 2}).div_(tensor({1, 2})), DTypeError);
  EXPECT_THROW(tensor({1, 2}).div_(2.0), DTypeError);
  EXPECT_EQ(t.to_vector<double>(), Values(6, 0.0));
}

TEST(InPlace, TheTargetKeepsItsTypeBesideOthersOfItsKind) {
  Tensor t = from_data(std::vector<float>{1, 2}, {2});
  t.mul_(tensor({0.1, 0.1}, {.dtype = DType::f64}));
  EXPECT_EQ(t.dtype(), DType::f32);
  EXPECT_EQ(t.to_vector<float>(), (std::vector<float>{static_cast<float>(1 * 0.1), static_cast<float>(2 * 0.1)}));
  t.add_(tensor({1, 2}));
  EXPECT_EQ(t.dtype(), DType::f32);
  Tensor bits = tensor({true, false});
  EXPECT_EQ(bits.add_(tensor({false, false})).to_vector<bool>(), (std::vector<bool>{true, false}));
  EXPECT_THROW(bits.add_(1), DTypeError);
}

TEST(InPlace, PlainTensorsMayOverlapTheirOperand) {
  Tensor t = from_data(Values{1, 2, 3, 4}, {2, 2});
  t.add_(t.t());
  EXPECT_EQ(t.to_vector<double>(), (Values{2, 5, 5, 8}));
  t.mul_(t);
  EXPECT_EQ(t.to_vector<double>(), (Values{4, 25, 25, 64}));
  t.sub_(t[0]);
  EXPECT_EQ(t.to_vector<double>(), (Values{0, 0, 21, 39}));
  t.copy_(t.t());
  EXPECT_EQ(t.to_vector<double>(), (Values{0, 21, 0, 39}));
}

TEST(InPlace, CopyConvertsAndCrossesDevicesUnderGradMode) {
  const Tensor a = leaf({3});
  Tensor y = zeros({2, 3}, {.device = "cpu:1"});
  y.copy_(a);
  EXPECT_TRUE(y.requires_grad());
  (y * 3).sum().backward();
  EXPECT_EQ(a.grad().to_vector<double>(), (Values{6, 6, 6}));
  EXPECT_EQ(a.grad().dtype(), DType::f64);
}

TEST(InPlace, TimesItsOwnValueAsAConstant) {
  const Tensor a = leaf({3});
  Tensor y = a * 2;
  y.mul_(y.detach());
  y.sum().backward();
  EXPECT_EQ(a.grad().to_vector<double>(), (a.detach() * 4).to_vector<double>());
}

TEST(InPlace, OverwritingCutsTheGraphAndLeavesOtherUsersAlone) {
  const Tensor a = leaf({3});
  Tensor y = a * 2;
  const Tensor early = y + 0;
  y.fill_(7);
  EXPECT_FALSE(y.requires_grad());
  (early.sum() + y.sum()).backward();
  EXPECT_EQ(a.grad().to_vector<double>(), (Values{2, 2, 2}));
}

TEST(InPlace, AConstantViewOfWhatDependsNowIsNotAConstantAnyMore) {
  const Tensor w = leaf({3});
  Tensor x = zeros({3}, {.dtype = DType::f64});
  const Tensor view = x.view({3});
  const Tensor values = x.detach();
  x.add_(w);
  EXPECT_EQ(message_of<AutogradError>([&] { view.sum(); }),
            "a tensor [3] was changed in place through another view, which was recorded: its gradient would be lost "
            "here. Make the view after the change, or use detach() for its values");
  EXPECT_EQ(values.sum().item(), w.detach().sum().item()) << "detach() stays a constant";
  Tensor y = zeros({3}, {.dtype = DType::f64});
  y.unsqueeze(0).add_(w);
  EXPECT_THROW(y.sum(), AutogradError) << "only the view that was changed has the history";
  Tensor z = zeros({2, 3}, {.dtype = DType::f64});
  const Tensor row = z[0];
  z.copy_(w);
  EXPECT_THROW(row.sum(), AutogradError);
  z.zero_();
  EXPECT_EQ(row.sum().item(), 0) << "it depends on nothing again";
}

}  // namespace
}  // namespace tandem
