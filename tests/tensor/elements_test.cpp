#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/autograd/ops.h>
#include <tandem/core/error.h>
#include <tandem/core/grad_mode.h>
#include <tandem/tensor/factories.h>

#include "support/gpu.h"
#include "support/message.h"

namespace tandem {
namespace {

using test::message_of;
using Ints = std::vector<std::int64_t>;

TEST(Item, ConvertsToTheWantedType) {
  EXPECT_EQ(tensor({2.75}).item(), 2.75);
  EXPECT_EQ(tensor({2.75}).item<float>(), 2.75f);
  EXPECT_EQ(tensor({2.75}).item<int>(), 2);
  EXPECT_EQ(tensor({-7}).item<double>(), -7);
  EXPECT_TRUE(tensor({true}).item<bool>());
  EXPECT_TRUE(tensor({0.5}).item<bool>()) << "what is not zero is true";
  EXPECT_EQ(full({1, 1, 1}, 3).item(), 3) << "any shape with one element";
}

TEST(Item, KeepsEveryDigitOfI64) {
  const std::int64_t large = std::numeric_limits<std::int64_t>::max() - 1;
  EXPECT_EQ(tensor({large}).item<std::int64_t>(), large);
  EXPECT_EQ(tensor({large}).item<long long>(), large);
  EXPECT_EQ(tensor({large}).item<std::uint64_t>(), static_cast<std::uint64_t>(large));
  EXPECT_EQ(tensor({large}).to_vector<std::int64_t>()[0], large);
}

TEST(Item, ReadsThroughAView) { EXPECT_EQ(arange(12).reshape({3, 4})[2][1].item<std::int64_t>(), 9); }

TEST(Item, NeedsExactlyOneElement) {
  EXPECT_EQ(message_of<ShapeError>([] { zeros({2, 3}).item(); }),
            "item: needs exactly one element, the tensor [2, 3] has 6; reduce it, or use to_vector()");
  EXPECT_EQ(message_of<ShapeError>([] { zeros({0}).item<std::int64_t>(); }),
            "item: needs exactly one element, the tensor [0] has 0; reduce it, or use to_vector()");
}

TEST(ToVector, ReadsAnyLayoutInRowMajorOrder) {
  const Tensor x = arange(6).reshape({2, 3});
  EXPECT_EQ(x.t().to_vector<std::int64_t>(), (Ints{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(x.slice(1, 0, 3, 2).to_vector<std::int64_t>(), (Ints{0, 2, 3, 5}));
  EXPECT_EQ(x[1].expand({2, 3}).to_vector<std::int64_t>(), (Ints{3, 4, 5, 3, 4, 5}));
  EXPECT_EQ(tensor(4.0).to_vector<float>(), (std::vector<float>{4}));
}

TEST(ToVector, ConvertsAsItGoes) {
  EXPECT_EQ(tensor({1.75, -2.5}).to_vector<std::int32_t>(), (std::vector<std::int32_t>{1, -2}));
  EXPECT_EQ(tensor({0.0, 0.25}).to_vector<bool>(), (std::vector<bool>{false, true}));
  EXPECT_EQ(tensor({true, false}).to_vector<double>(), (std::vector<double>{1, 0}));
  EXPECT_EQ(tensor({-1.0, 300.0}).to_vector<std::uint8_t>(), (std::vector<std::uint8_t>{255, 44}));
}

TEST(Data, IsTypedAndStartsAtTheView) {
  TANDEM_SKIP_ON_GPU("the host reads the memory");
  const Tensor x = arange(6).reshape({2, 3});
  EXPECT_EQ(*x[1].data<std::int64_t>(), 3);
  EXPECT_EQ(message_of<DTypeError>([&] { x.data<float>(); }),
            "data<f32>: the tensor holds i64; convert with .to(DType::f32)");
}

TEST(Span, IsEverythingInOrder) {
  TANDEM_SKIP_ON_GPU("the host reads the memory");
  const Tensor x = tensor({1.0, 2.0, 3.0});
  const auto span = x.span<float>();
  EXPECT_EQ(std::vector<float>(span.begin(), span.end()), (std::vector<float>{1, 2, 3}));
  EXPECT_TRUE(zeros({0, 4}).span<float>().empty());
  EXPECT_EQ(arange(6).reshape({2, 3})[1].span<std::int64_t>()[0], 3);
}

TEST(Span, NeedsDenseMemory) {
  TANDEM_SKIP_ON_GPU("the host reads the memory");
  const Tensor x = zeros({2, 3}).t();
  EXPECT_EQ(message_of<ShapeError>([&] { x.span<float>(); }),
            "span: the tensor [3, 2] with strides [1, 3] is not contiguous; call .contiguous() first");
  EXPECT_EQ(x.contiguous().span<float>().size(), 6u);
  EXPECT_THROW(zeros({1}).expand({3}).span<float>(), ShapeError);
}

TEST(Span, OfAnEmptyViewIsEmptyWhateverItsStrides) {
  TANDEM_SKIP_ON_GPU("the host reads the memory");
  const Tensor x = zeros({4, 6}).slice(1, 0, 6, 2).narrow(0, 2, 0);
  EXPECT_EQ(x.shape(), (Shape{0, 3}));
  EXPECT_TRUE(x.is_contiguous());
  EXPECT_TRUE(x.span<float>().empty());
  EXPECT_EQ(x.view({3, 0}).numel(), 0);
}

TEST(MutableData, WritesAndTellsAutograd) {
  TANDEM_SKIP_ON_GPU("the host reads the memory");
  Tensor x = zeros({2, 2});
  const Tensor alias = x[1];
  const std::uint32_t before = x.version();
  x.mutable_data<float>()[3] = 5;
  EXPECT_GT(x.version(), before);
  EXPECT_EQ(alias.version(), x.version()) << "one version for all that share the memory";
  EXPECT_EQ(alias.to_vector<float>(), (std::vector<float>{0, 5}));
  const std::uint32_t between = x.version();
  x.mutable_span<float>()[0] = 1;
  EXPECT_GT(x.version(), between);
}

TEST(MutableData, ARefusalChangesNothing) {
  Tensor x = zeros({2, 3});
  const std::uint32_t before = x.version();
  EXPECT_THROW(x.mutable_data<double>(), DTypeError);
  EXPECT_THROW(x.mutable_span<std::int64_t>(), DTypeError);
  Tensor transposed = x.t();
  EXPECT_THROW(transposed.mutable_span<float>(), ShapeError);
  EXPECT_EQ(x.version(), before);
}

TEST(Version, CountsChangesInPlace) {
  Tensor x = ones({3});
  const NoGradGuard no_grad;
  std::uint32_t last = x.version();
  const std::vector<std::function<void()>> changes{
      [&] { x.add_(1); },          [&] { x.mul_(ones({3})); }, [&] { x.fill_(2); }, [&] { x.zero_(); },
      [&] { x.copy_(ones({3})); }, [&] { x.uniform_(); },      [&] { x.normal_(); }};
  for (const auto& change : changes) {
    change();
    EXPECT_GT(x.version(), last);
    last = x.version();
  }
  x + x;
  x.to_vector<float>();
  x.clone().add_(1);
  EXPECT_EQ(x.version(), last) << "reading is no change";
}

TEST(Size, CountsFromBothEnds) {
  const Tensor x = zeros({2, 3, 4});
  EXPECT_EQ(x.size(0), 2);
  EXPECT_EQ(x.size(-1), 4);
  EXPECT_EQ(message_of<ShapeError>([&] { x.size(3); }),
            "size: dimension 3 is out of range for a tensor with 3 dimensions (expected -3 to 2)");
  EXPECT_EQ(message_of<ShapeError>([] { tensor(1.0).size(0); }), "size: a scalar has no dimensions");
}

// Nothing is lost silently: a result that does not fit into the changed tensor is an error.
TEST(IntegerArithmetic, RefusesFractionsInPlace) {
  Tensor x = tensor({1, 2});
  EXPECT_EQ(message_of<DTypeError>([&] { x.add_(0.5); }),
            "add_: the result is f32 and does not fit into the i64 tensor that is changed in place; use the op that "
            "returns a new tensor");
  EXPECT_THROW(x.mul_(ones({2})), DTypeError);
  EXPECT_THROW(x.div_(2), DTypeError);
  EXPECT_EQ(x.add_(3).to_vector<std::int64_t>(), (Ints{4, 5}));
  EXPECT_EQ((x * 3).to_vector<std::int64_t>(), (Ints{12, 15}));
  EXPECT_EQ((1 - x).to_vector<std::int64_t>(), (Ints{-3, -4}));
}

// Using a default-constructed tensor is an error, never a crash.
TEST(Undefined, EveryUseButThreeIsAnError) {
  const Tensor undefined;
  EXPECT_FALSE(undefined.defined());
  const Tensor copy = undefined;
  EXPECT_FALSE(copy.defined());
  Tensor target;
  const std::vector<std::pair<std::string, std::function<void()>>> uses{
      {"shape", [&] { undefined.shape(); }},
      {"strides", [&] { undefined.strides(); }},
      {"dtype", [&] { undefined.dtype(); }},
      {"device", [&] { undefined.device(); }},
      {"numel", [&] { undefined.numel(); }},
      {"version", [&] { undefined.version(); }},
      {"item", [&] { undefined.item(); }},
      {"data", [&] { undefined.data<float>(); }},
      {"span", [&] { undefined.span<float>(); }},
      {"mutable_data", [&] { target.mutable_data<float>(); }},
      {"to_vector", [&] { undefined.to_vector<float>(); }},
      {"to dtype", [&] { undefined.to(DType::f64); }},
      {"to device", [&] { undefined.to(Device("cpu:1")); }},
      {"clone", [&] { undefined.clone(); }},
      {"detach", [&] { undefined.detach(); }},
      {"contiguous", [&] { undefined.contiguous(); }},
      {"requires_grad", [&] { undefined.requires_grad(); }},
      {"requires_grad_", [&] { target.requires_grad_(); }},
      {"grad", [&] { undefined.grad(); }},
      {"zero_grad", [&] { undefined.zero_grad(); }},
      {"backward", [&] { undefined.backward(); }},
      {"reshape", [&] { undefined.reshape({1}); }},
      {"transpose", [&] { undefined.transpose(0, 1); }},
      {"select", [&] { undefined[0]; }},
      {"expand", [&] { undefined.expand({1}); }},
      {"index_select", [&] { zeros({2}).index_select(0, undefined); }},
      {"add", [&] { undefined + ones({1}); }},
      {"add to", [&] { ones({1}) + undefined; }},
      {"exp", [&] { undefined.exp(); }},
      {"matmul", [&] { ones({1, 1}).matmul(undefined); }},
      {"sum", [&] { undefined.sum(); }},
      {"argmax", [&] { undefined.argmax(); }},
      {"softmax", [&] { undefined.softmax(0); }},
      {"add_", [&] { target.add_(1); }},
      {"copy_", [&] { target.copy_(ones({1})); }},
      {"fill_", [&] { target.fill_(1); }},
      {"uniform_", [&] { target.uniform_(); }},
      {"zeros_like", [&] { zeros_like(undefined); }},
      {"linear", [&] { linear(ones({1, 1}), undefined); }},
      {"mse_loss", [&] { mse_loss(undefined, ones({1})); }},
      {"cross_entropy", [&] { cross_entropy(ones({1, 2}), undefined); }}};
  for (const auto& [name, use] : uses) {
    EXPECT_EQ(
        message_of<ConfigError>(use),
        "an undefined tensor was used (a default-constructed Tensor, a bias that a layer does not have, or a gradient "
        "that is not there yet)")
        << name;
  }
  EXPECT_EQ(message_of<ConfigError>([&] { cat({ones({1}), undefined}); }), "cat: tensor 1 is undefined");
  EXPECT_EQ(message_of<ConfigError>([&] { stack({undefined}); }), "stack: tensor 0 is undefined");
}

}  // namespace
}  // namespace tandem
