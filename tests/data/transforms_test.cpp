#include <tandem/data/transforms.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/autograd/ops.h>
#include <tandem/data/loader.h>
#include <tandem/tensor/factories.h>

#include "support/message.h"

namespace tandem {
namespace {

using data::MapDataset;
using data::Normalize;
using data::RandomCrop;
using data::RandomHorizontalFlip;
using test::message_of;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Pixels = std::vector<float>;

// Images of which no two pixels are equal, and none is 0.
Tensor distinct_images(const Shape& sizes, DType dtype = DType::f32) {
  const Tensor whole = arange(1, 1 + Tensor(zeros(sizes)).numel()).reshape(sizes);
  return whole.to(dtype);
}

data::TensorDataset numbered_images(std::int64_t count) { return {distinct_images({count, 2, 5, 4}), arange(count)}; }

// The window of `image` [channels, rows, columns] at (top, left) of the image with its padding, by a loop over pixels.
Pixels window_of(const Tensor& image, std::int64_t top, std::int64_t left, std::int64_t height, std::int64_t width,
                 std::int64_t padding, float fill) {
  const Pixels pixels = image.to_vector<float>();
  Pixels window;
  for (std::int64_t c = 0; c < image.size(0); ++c) {
    for (std::int64_t y = top - padding; y < top - padding + height; ++y) {
      for (std::int64_t x = left - padding; x < left - padding + width; ++x) {
        const bool is_inside = y >= 0 && y < image.size(1) && x >= 0 && x < image.size(2);
        const std::int64_t at = (c * image.size(1) + y) * image.size(2) + x;
        window.push_back(is_inside ? pixels[static_cast<std::size_t>(at)] : fill);
      }
    }
  }
  return window;
}

Pixels mirrored(const Tensor& image) {
  Pixels pixels = image.to_vector<float>();
  const std::int64_t columns = image.size(-1);
  for (auto row = pixels.begin(); row != pixels.end(); row += columns) {
    std::reverse(row, row + columns);
  }
  return pixels;
}

// All places of the windows are drawn, each is the right part of its image, and images draw independently.
void expect_windows(const Tensor& images, std::int64_t height, std::int64_t width, std::int64_t padding) {
  constexpr float kFill = -3;
  const RandomCrop crop(height, width, {.padding = padding, .fill = kFill});
  const std::int64_t down = images.size(2) + 2 * padding - height;
  const std::int64_t right = images.size(3) + 2 * padding - width;
  std::set<std::pair<std::int64_t, std::int64_t>> seen;
  bool differ = down + right == 0;
  for (int round = 0; round < 60; ++round) {
    const Tensor windows = crop(images);
    ASSERT_EQ(windows.shape(), (Shape{images.size(0), images.size(1), height, width}));
    std::set<std::pair<std::int64_t, std::int64_t>> of_batch;
    for (std::int64_t i = 0; i < images.size(0); ++i) {
      const Pixels got = windows[i].to_vector<float>();
      int matches = 0;
      for (std::int64_t top = 0; top <= down; ++top) {
        for (std::int64_t left = 0; left <= right; ++left) {
          if (got == window_of(images[i], top, left, height, width, padding, kFill)) {
            ++matches;
            of_batch.emplace(top, left);
          }
        }
      }
      ASSERT_GE(matches, 1);
    }
    differ = differ || of_batch.size() > 1;
    seen.insert(of_batch.begin(), of_batch.end());
  }
  EXPECT_EQ(seen.size(), static_cast<std::size_t>((down + 1) * (right + 1)));
  EXPECT_TRUE(differ) << "all images of a batch draw the same window";
}

TEST(RandomCrop, CutsEachWindowOutOfItsImage) {
  manual_seed(1);
  const Tensor images = distinct_images({4, 3, 5, 4});
  expect_windows(images, 5, 4, 0);
  expect_windows(images, 3, 2, 0);
  expect_windows(images, 5, 4, 1);
  expect_windows(images, 6, 2, 1);
  expect_windows(images, 1, 1, 0);
}

TEST(RandomCrop, TakesOneImageAnyTypeAndAnyStrides) {
  manual_seed(2);
  EXPECT_EQ(RandomCrop(2)(distinct_images({3, 5, 4})).shape(), (Shape{3, 2, 2}));
  const Tensor bytes = RandomCrop(5, {.padding = 2, .fill = 7})(distinct_images({2, 1, 3, 3}, DType::u8));
  EXPECT_EQ(bytes.dtype(), DType::u8);
  const Tensor images = distinct_images({2, 4, 5, 3}).permute({0, 3, 1, 2});
  EXPECT_EQ(RandomCrop(4, 5)(images).to_vector<float>(), images.to_vector<float>());
}

TEST(RandomCrop, AWindowInThePaddingIsFilled) {
  const Tensor image = distinct_images({1, 1, 1});
  manual_seed(3);
  std::set<double> sums;
  for (int i = 0; i < 100; ++i) {
    sums.insert(RandomCrop(1, {.padding = 2, .fill = 5})(image).sum().item());
  }
  EXPECT_THAT(sums, ElementsAre(1, 5));
}

TEST(RandomHorizontalFlip, MirrorsEachImageByItsOwnDraw) {
  manual_seed(4);
  const Tensor images = distinct_images({200, 2, 3, 4});
  const Tensor flipped = RandomHorizontalFlip(0.25)(images);
  int count = 0;
  for (std::int64_t i = 0; i < images.size(0); ++i) {
    const Pixels got = flipped[i].to_vector<float>();
    const bool is_mirrored = got == mirrored(images[i]);
    ASSERT_TRUE(is_mirrored || got == images[i].to_vector<float>()) << i;
    count += is_mirrored ? 1 : 0;
  }
  EXPECT_GT(count, 25);
  EXPECT_LT(count, 75);
}

TEST(RandomHorizontalFlip, AlwaysOrNeverMirrorsAtTheEndsOfItsRange) {
  const Tensor images = distinct_images({50, 1, 2, 3});
  EXPECT_EQ(RandomHorizontalFlip(0)(images).to_vector<float>(), images.to_vector<float>());
  EXPECT_EQ(RandomHorizontalFlip(1)(images).to_vector<float>(), mirrored(images));
  EXPECT_EQ(RandomHorizontalFlip(1)(images[7]).to_vector<float>(), mirrored(images[7]));
  EXPECT_EQ(images.to_vector<float>(), distinct_images({50, 1, 2, 3}).to_vector<float>()) << "the argument changed";
}

TEST(Normalize, ShiftsAndScalesEachChannel) {
  const Tensor images = distinct_images({3, 2, 2, 2});
  const Normalize normalize({1, -2}, {2, 0.5});
  const Pixels from = images.to_vector<float>();
  const Pixels got = normalize(images).to_vector<float>();
  for (std::size_t i = 0; i < from.size(); ++i) {
    const bool is_first = i / 4 % 2 == 0;
    EXPECT_EQ(got[i], is_first ? (from[i] - 1) / 2.F : (from[i] + 2) / 0.5F) << i;
  }
  EXPECT_EQ(normalize(images[1]).to_vector<float>(), normalize(images)[1].to_vector<float>());
  EXPECT_EQ(images.to_vector<float>(), from) << "the argument changed";
}

// An epoch of the loader, one row of pixels a batch.
std::vector<Pixels> augmented_epoch(const data::Dataset& dataset, int workers, std::int64_t epoch,
                                    std::uint64_t seed = 5) {
  data::DataLoader loader(dataset, {.batch_size = 4, .shuffle = true, .num_workers = workers, .seed = seed});
  loader.set_epoch(epoch);
  std::vector<Pixels> batches;
  for (const auto& [x, y] : loader) {
    batches.push_back(x.to_vector<float>());
  }
  return batches;
}

MapDataset augmented(std::int64_t count) {
  return {numbered_images(count),
          {RandomCrop(5, 4, {.padding = 2}), RandomHorizontalFlip(), Normalize({1, 2}, {3, 4})}};
}

TEST(MapDataset, AnEpochIsTheSameForAnyNumberOfWorkers) {
  const MapDataset dataset = augmented(30);
  const std::vector<Pixels> expected = augmented_epoch(dataset, 0, 0);
  EXPECT_EQ(expected.size(), 8U);
  for (const int workers : {0, 1, 4}) {
    EXPECT_EQ(augmented_epoch(dataset, workers, 0), expected) << workers << " workers";
  }
}

TEST(MapDataset, EpochsAndSeedsDiffer) {
  // One batch in the order of the data: only the draws can differ.
  const MapDataset dataset(numbered_images(20), {RandomCrop(5, 4, {.padding = 2})});
  data::DataLoader loader(dataset, {.batch_size = 20, .seed = 5});
  data::DataLoader other(dataset, {.batch_size = 20, .seed = 6});
  const Pixels first = (*loader.begin()).x.to_vector<float>();
  const Pixels second = (*loader.begin()).x.to_vector<float>();
  EXPECT_NE(first, second);
  EXPECT_NE(first, (*other.begin()).x.to_vector<float>());
  loader.set_epoch(0);
  EXPECT_EQ(first, (*loader.begin()).x.to_vector<float>());
}

TEST(MapDataset, AppliesTransformsInOrderAndLeavesTargets) {
  const auto twice = [](const Tensor& x) { return x * 2; };
  const auto plus_one = [](const Tensor& x) { return x + 1; };
  const MapDataset dataset(data::TensorDataset(tensor({1.0, 2.0, 3.0}), tensor({7, 8, 9})), {twice, plus_one});
  EXPECT_EQ(dataset.size(), 3);
  EXPECT_EQ(dataset.get(1).x.item(), 5);
  EXPECT_EQ(dataset.get(1).y.item<std::int64_t>(), 8);
  const data::Example batch = dataset.get_batch(std::vector<std::int64_t>{2, 0});
  EXPECT_THAT(batch.x.to_vector<float>(), ElementsAre(7, 3));
  EXPECT_THAT(batch.y.to_vector<std::int64_t>(), ElementsAre(9, 7));
  EXPECT_FALSE(MapDataset(data::TensorDataset(tensor({1.0})), {twice}).get(0).y.defined());
  EXPECT_EQ(MapDataset(numbered_images(2), {}).get(0).x.to_vector<float>(),
            numbered_images(2).get(0).x.to_vector<float>());
}

TEST(MapDataset, RecordsNothingAndLeavesTheSamples) {
  const data::TensorDataset images = numbered_images(4);
  const MapDataset dataset(images, {RandomHorizontalFlip(1), [](const Tensor& x) { return x * 2; }});
  Tensor weights = images.x();
  weights.requires_grad_();
  EXPECT_FALSE(dataset.get(0).x.requires_grad());
  EXPECT_EQ(images.x().to_vector<float>(), distinct_images({4, 2, 5, 4}).to_vector<float>());
}

TEST(MapDataset, ABatchOfNoneHasTheShapeOfAWindow) {
  EXPECT_EQ(augmented(3).get_batch({}).x.shape(), (Shape{0, 2, 5, 4}));
  EXPECT_EQ(RandomCrop(2)(distinct_images({0, 3, 5, 4})).shape(), (Shape{0, 3, 2, 2}));
}

TEST(MapDataset, AugmentsOutsideOfACache) {
  const MapDataset dataset(data::CachedDataset(numbered_images(12)), {RandomCrop(5, 4, {.padding = 1})});
  EXPECT_EQ(augmented_epoch(dataset, 4, 0), augmented_epoch(dataset, 0, 0));
  EXPECT_NE(augmented_epoch(dataset, 0, 1), augmented_epoch(dataset, 0, 0));
}

TEST(MapDataset, ManyThreadsMayUseIt) {
  const MapDataset dataset = augmented(30);
  const std::vector<Pixels> expected = augmented_epoch(dataset, 0, 0);
  std::vector<char> equal(4);
  {
    std::vector<std::jthread> threads;
    for (char& is_equal : equal) {
      threads.emplace_back(
          [&dataset, &expected, &is_equal] { is_equal = augmented_epoch(dataset, 2, 0) == expected ? 1 : 0; });
    }
  }
  EXPECT_THAT(equal, Each(1));
}

TEST(MapDataset, NamesTheTransformThatLosesSamples) {
  const MapDataset dataset(numbered_images(3),
                           {RandomHorizontalFlip(), [](const Tensor& x) { return x.slice(0, 1, 100); }});
  EXPECT_EQ(message_of<ShapeError>([&] { dataset.get_batch(std::vector<std::int64_t>{0, 1}); }),
            "MapDataset: transform 1 must return its 2 samples, got [1, 2, 5, 4]");
  EXPECT_EQ(message_of<ConfigError>([] { MapDataset(numbered_images(3), {RandomHorizontalFlip(), nullptr}); }),
            "MapDataset: transform 1 is empty; pass a function");
}

TEST(MapDataset, AForeignExceptionNamesTheSamples) {
  const MapDataset dataset(numbered_images(3), {[](const Tensor&) -> Tensor { throw std::runtime_error("no"); }});
  data::DataLoader loader(dataset, {.batch_size = 2});
  try {
    loader.begin();
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("while loading samples 0, 1"));
  }
}

TEST(Transforms, RefuseOptionsOutOfRange) {
  EXPECT_EQ(message_of<ConfigError>([] { RandomCrop(0); }),
            "RandomCrop: expected a size of at least 1x1 and a padding from 0 to 2^30, got 0x0 and 0");
  EXPECT_EQ(message_of<ConfigError>([] { RandomCrop(2, 3, {.padding = -1}); }),
            "RandomCrop: expected a size of at least 1x1 and a padding from 0 to 2^30, got 2x3 and -1");
  EXPECT_EQ(message_of<ConfigError>([] { RandomHorizontalFlip(1.5); }),
            "RandomHorizontalFlip: p must be a probability from 0 to 1, got 1.5");
  EXPECT_EQ(message_of<ConfigError>([] { RandomHorizontalFlip{std::nan("")}; }),
            "RandomHorizontalFlip: p must be a probability from 0 to 1, got nan");
  EXPECT_EQ(message_of<ConfigError>([] { Normalize({0, 1}, {1, 0}); }),
            "Normalize: channel 1: mean 1, std 0; expected finite numbers, std > 0");
  EXPECT_EQ(message_of<ConfigError>([] { Normalize({0}, {1e-60}); }),
            "Normalize: channel 0: mean 0, std 1e-60; expected finite numbers, std > 0");
  EXPECT_EQ(message_of<ConfigError>([] { Normalize({0, 1}, {1}); }),
            "Normalize: expected a mean and a std for each channel, got 2 and 1");
}

TEST(Transforms, RefuseOtherTensorsThanImages) {
  EXPECT_EQ(message_of<ShapeError>([] { RandomCrop(9)(distinct_images({2, 1, 5, 4})); }),
            "RandomCrop: a window of 9x9 is too large for images [2, 1, 5, 4] with padding 0; add padding");
  EXPECT_EQ(message_of<ShapeError>([] { RandomHorizontalFlip()(distinct_images({2, 20})); }),
            "RandomHorizontalFlip: expected images [channels, height, width] or a batch of them, got [2, 20]; "
            "reshape() them");
  EXPECT_EQ(
      message_of<ShapeError>([] { Normalize({0}, {1})(distinct_images({2, 3, 5, 4})); }),
      "Normalize: there are means of 1 channels, got images [2, 3, 5, 4]; pass a mean and a std for each channel");
  EXPECT_EQ(message_of<DTypeError>([] { Normalize({0}, {1})(distinct_images({2, 1, 5, 4}, DType::u8)); }),
            "Normalize: got u8 images; convert them with .to(DType::f32)");
}

}  // namespace
}  // namespace tandem
