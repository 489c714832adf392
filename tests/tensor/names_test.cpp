#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/tandem.h>

// Programs that open namespace tandem and have names of their own.

namespace user {

using namespace tandem;

struct Half {
  int of = 0;
};

TEST(Names, EmptyTakesSizesInAVector) {
  std::vector<std::int64_t> sizes{2, 3};
  const std::vector<std::int64_t> constant{4};
  EXPECT_EQ(empty(sizes).shape(), Shape({2, 3}));
  EXPECT_EQ(empty(constant).shape(), Shape({4}));
}

TEST(Names, HalfIsTheUsers) {
  const Half half{2};
  EXPECT_EQ(half.of, 2);
}

}  // namespace user
