#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/kernels/fill.h>

#include "kernels/typed_memory.h"

namespace tandem::kernels {
namespace {

using test::converted;
using test::kAllTypes;
using test::Layout;
using test::Rng;
using Memory = test::TypedMemory;

TEST(Fill, WritesItsElementsAndNoOthers) {
  Rng rng(71);
  for (const DType dtype : kAllTypes) {
    for (const Shape& sizes : test::awkward_shapes()) {
      const Layout layout = test::random_layout(rng, sizes, false);
      Memory out(dtype, layout.extent);
      std::vector<double> expected(static_cast<std::size_t>(layout.extent));
      test::for_each_element(sizes, [&](std::size_t at) { expected[at] = converted(7.5, DType::f64, dtype); }, layout);
      Fill kernel{.dtype = dtype, .loop = test::loop_of(sizes), .out = out.operand(layout), .value = 7.5};
      if (rng() % 2 == 0) simplify(kernel.loop, {&kernel.out});
      launch(test::cpu(), kernel);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        ASSERT_EQ(out.get(i), expected[i]) << name(dtype) << " " << to_string(sizes);
      }
    }
  }
}

TEST(Arange, CountsInAllTypes) {
  for (const DType dtype : kAllTypes) {
    Memory out(dtype, 10);
    launch(test::cpu(), Arange{.dtype = dtype, .out = out.as<void>(), .count = 10, .start = 3, .step = 2});
    for (std::size_t i = 0; i < 10; ++i) {
      EXPECT_EQ(out.get(i), converted(3 + 2 * static_cast<double>(i), DType::f64, dtype)) << name(dtype);
    }
  }
}

// Each element comes from its number: sums of steps would drift.
TEST(Arange, DoesNotDrift) {
  std::vector<double> out(100001);
  launch(test::cpu(), Arange{.dtype = DType::f64, .out = out.data(), .count = 100001, .start = 0, .step = 0.1});
  EXPECT_EQ(out.back(), 100000 * 0.1);
  launch(test::cpu(), Arange{.dtype = DType::f64, .out = nullptr, .count = 0, .start = 0, .step = 1});
}

}  // namespace
}  // namespace tandem::kernels
