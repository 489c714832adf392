#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/autograd/ops.h>
#include <tandem/core/error.h>
#include <tandem/core/grad_mode.h>
#include <tandem/tensor/factories.h>

#include "support/gpu.h"
#include "support/memory.h"
#include "support/message.h"

// The semantics of handles, and how C++ programs use handles and numbers.

namespace tandem {
namespace {

using test::memory_of;
using test::message_of;

// `x[0] = y` would change a temporary handle.
static_assert(!std::is_assignable_v<Tensor, const Tensor&> && !std::is_assignable_v<Tensor, Tensor>);
static_assert(std::is_assignable_v<Tensor&, const Tensor&> && std::is_assignable_v<Tensor&, Tensor>);
static_assert(!std::is_constructible_v<Device, bool>);

TEST(Handle, AViewOfTheSameShapeIsAnotherTensor) {
  const Tensor x = ones({4});
  for (Tensor y : {x.reshape({4}), x.view({4}), x.t(), x.flatten()}) {
    y.requires_grad_();
    EXPECT_FALSE(x.requires_grad());
    EXPECT_EQ(memory_of(y), memory_of(x));
  }
}

TEST(Handle, AViewWithoutANameTakesArithmeticInPlace) {
  Tensor x = zeros({2, 2});
  x[0] += 1;
  x[1] -= tensor({1.0, 2.0});
  x[1] *= 2;
  x[1] /= tensor({2.0, 4.0});
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{1, 1, -1, -1}));
}

TEST(Handle, ShapesComeFromVectorsToo) {
  const std::vector<std::int64_t> sizes{2, 3};
  EXPECT_EQ(zeros(sizes).reshape(std::vector<std::int64_t>{3, 2}).shape(), (Shape{3, 2}));
}

TEST(Handle, WhatDescribesItCanBeWrittenToAStream) {
  const Tensor x = zeros({2, 3}, {.dtype = DType::bf16, .device = "cpu:1"});
  std::ostringstream out;
  out << x.shape() << ' ' << x.dtype() << ' ' << x.device();
  EXPECT_EQ(out.str(), "[2, 3] bf16 cpu:1");
}

TEST(Item, RefusesAnIntegerThatCannotHoldTheValue) {
  EXPECT_EQ(message_of<ValueError>([] { tensor(300).item<std::uint8_t>(); }),
            "item: 300 does not fit into an integer from 0 to 255");
  EXPECT_THROW(tensor(3e10).item<int>(), ValueError);
  EXPECT_THROW(tensor(NAN).item<int>(), ValueError);
  EXPECT_THROW(tensor(-1).item<std::uint64_t>(), ValueError);
  EXPECT_EQ(tensor(-1.75).item<int>(), -1);
  EXPECT_EQ(tensor(std::int64_t{-1} << 62).item<std::int64_t>(), std::int64_t{-1} << 62);
}

TEST(Scalar, IsExactOrRefused) {
  const Tensor x = tensor({0});
  EXPECT_EQ(message_of<ConfigError>([&] { x + 9007199254740993LL; }),
            "9007199254740993 is beyond 2^53, what is counted exactly");
  EXPECT_THROW(tensor({0}).fill_(9007199254740993LL), ConfigError);
  EXPECT_EQ((x + (std::int64_t{1} << 53)).item<std::int64_t>(), std::int64_t{1} << 53);
}

// Objects of static storage are destroyed after main, in an order beyond the library's control. A forked child has none
// of its parent's threads.
TEST(StaticTensors, MayComputeInTheirDestructors) {
  TANDEM_SKIP_ON_GPU("a forked child cannot use its parent's GPU");
  (ones({500, 500}) * 2.0).sum();  // starts the pool's threads
  const auto compute_late = [] {
    struct Late {
      Tensor t;
      ~Late() {
        if (t.defined() && (t * 2.0).sum().item() != 500'000) std::_Exit(3);
      }
    };
    static Late late;
    late.t = ones({500, 500});
    std::exit(0);
  };
  EXPECT_EXIT(compute_late(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace tandem
