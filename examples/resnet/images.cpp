#include "images.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include <tandem/autograd/ops.h>
#include <tandem/core/check.h>
#include <tandem/tensor/factories.h>

#include "../common/digits.h"

namespace example {

using namespace tandem;

namespace {

// Reads records of a byte for the class and 32x32 bytes for each of red, green and blue.
std::pair<Tensor, Tensor> read_cifar(const std::filesystem::path& path) {
  constexpr std::int64_t kRecord = 1 + 3 * 32 * 32;
  std::ifstream file(path, std::ios::binary);
  check<IoError>(file.is_open(),
                 "{}: cannot be opened; CIFAR-10 has data_batch_1.bin to data_batch_5.bin and "
                 "test_batch.bin",
                 path.string());
  std::vector<std::uint8_t> bytes(std::istreambuf_iterator<char>(file), {});
  const auto size = static_cast<std::int64_t>(bytes.size());
  check<IoError>(size > 0 && size % kRecord == 0,
                 "{}: expected a file of CIFAR-10 with {} bytes for each image, got {} bytes", path.string(), kRecord,
                 size);
  const Tensor records = from_data(std::move(bytes), {size / kRecord, kRecord});
  const Tensor labels = records.select(1, 0).to(DType::i64);
  check<IoError>(labels.max().item<std::int64_t>() < 10, "{}: expected classes below 10, got {}; CIFAR-100 is not read",
                 path.string(), labels.max().item<std::int64_t>());
  return {records.narrow(1, 1, kRecord - 1).reshape({-1, 3, 32, 32}), labels};
}

Images load_cifar(const std::filesystem::path& folder) {
  std::vector<Tensor> x;
  std::vector<Tensor> y;
  for (int i = 1; i <= 5; ++i) {
    auto [images, labels] = read_cifar(folder / fmt::format("data_batch_{}.bin", i));
    x.push_back(images);
    y.push_back(labels);
  }
  const auto [test_x, test_y] = read_cifar(folder / "test_batch.bin");
  return {.train_x = cat(x),
          .train_y = cat(y),
          .test_x = test_x,
          .test_y = test_y,
          .classes = {"plane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"},
          .may_flip = true};
}

}  // namespace

Images load_images(const std::string& folder) {
  if (!folder.empty() && std::filesystem::exists(std::filesystem::path(folder) / "data_batch_1.bin")) {
    return load_cifar(folder);
  }
  const Digits digits = load_digits(folder);
  return {.train_x = as_images(digits.train_x, 16).to(DType::u8),
          .train_y = digits.train_y,
          .test_x = as_images(digits.test_x, 16).to(DType::u8),
          .test_y = digits.test_y,
          .classes = digits.class_names(),
          .may_flip = false};
}

}  // namespace example
