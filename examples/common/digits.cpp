#include "digits.h"

#include <algorithm>
#include <filesystem>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <tandem/autograd/ops.h>
#include <tandem/core/check.h>
#include <tandem/data/csv.h>
#include <tandem/data/idx.h>
#include <tandem/tensor/factories.h>

#include "data_file.h"

namespace example {

using namespace tandem;

namespace {

namespace fs = std::filesystem;

// Reads rows of numbers whose last column is the class.
std::pair<Tensor, Tensor> read_optdigits(const std::string& path) {
  const data::CsvTable table = data::read_csv(path, {.header = data::Header::no});
  check<IoError>(table.num_columns() == 65, "{}: expected 64 pixels and a class, got {} columns", path,
                 table.num_columns());
  std::vector<std::string> pixels = table.column_names();
  const std::string label = pixels.back();
  pixels.pop_back();
  return {data::to_tensor(table, pixels), data::to_tensor(table, {label}).flatten().to(DType::i64)};
}

// Finds "train-images-idx3-ubyte", plain or .gz. Some copies have a dot for the second dash.
std::string find_idx(const fs::path& folder, const std::string& part, const std::string& kind) {
  for (const char* separator : {"-", "."}) {
    for (const char* suffix : {"", ".gz"}) {
      const char* dimensions = kind == "images" ? "idx3" : "idx1";
      const fs::path path = folder / fmt::format("{}-{}{}{}-ubyte{}", part, kind, separator, dimensions, suffix);
      if (fs::exists(path)) {
        return path.string();
      }
    }
  }
  return {};
}

std::pair<Tensor, Tensor> read_mnist(const std::string& images, const std::string& labels) {
  const Tensor x = data::to_tensor(data::read_idx(images));
  const Tensor y = data::to_tensor(data::read_idx(labels));
  check<IoError>(x.dim() >= 2, "{}: expected images [count, rows, columns], got {}", images, x.shape());
  check<IoError>(y.dim() == 1 && y.dtype() == DType::u8, "{}: expected one unsigned byte a label, got {} {}", labels,
                 name(y.dtype()), y.shape());
  check<IoError>(y.size(0) == x.size(0), "{}: {} labels, but {} has {} images", labels, y.size(0), images, x.size(0));
  return {x.flatten(1).to(DType::f32), y.to(DType::i64)};
}

Digits load_mnist(const fs::path& folder) {
  check<IoError>(fs::is_directory(folder), "--data '{}': not a folder; expected one with MNIST-style IDX files",
                 folder.string());
  const std::string test_images = find_idx(folder, "t10k", "images");
  const std::string test_labels = find_idx(folder, "t10k", "labels");
  check<IoError>(!test_images.empty() && !test_labels.empty(),
                 "--data '{}': expected t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte (.gz or not), and the same "
                 "for train",
                 folder.string());
  Digits digits;
  digits.name = folder.string();
  std::tie(digits.test_x, digits.test_y) = read_mnist(test_images, test_labels);
  const std::string train_images = find_idx(folder, "train", "images");
  const std::string train_labels = find_idx(folder, "train", "labels");
  check<IoError>(train_images.empty() == train_labels.empty(), "--data '{}': there are train-{}, but no train-{}",
                 folder.string(), train_labels.empty() ? "images" : "labels",
                 train_labels.empty() ? "labels" : "images");
  if (!train_images.empty() && !train_labels.empty()) {
    std::tie(digits.train_x, digits.train_y) = read_mnist(train_images, train_labels);
    check<IoError>(digits.train_x.size(1) == digits.test_x.size(1), "{}: {} pixels an image, but {} in {}",
                   train_images, digits.train_x.size(1), digits.test_x.size(1), test_images);
    return digits;
  }
  const std::int64_t rows = digits.test_x.size(0);
  const std::int64_t train = rows * 9 / 10;
  check<IoError>(train >= 1 && train < rows, "{}: too few images ({}): the first nine tenths train, the rest tests",
                 test_images, rows);
  digits.name += fmt::format(" (t10k files only: the first {} train)", train);
  digits.train_x = digits.test_x.narrow(0, 0, train).contiguous();
  digits.train_y = digits.test_y.narrow(0, 0, train).contiguous();
  digits.test_x = digits.test_x.narrow(0, train, rows - train).contiguous();
  digits.test_y = digits.test_y.narrow(0, train, rows - train).contiguous();
  return digits;
}

}  // namespace

Digits load_digits(const std::string& folder) {
  Digits digits;
  if (folder.empty()) {
    digits.name = "handwritten digits, 8x8 (UCI optdigits)";
    std::tie(digits.train_x, digits.train_y) = read_optdigits(data_file("optdigits.tra.gz"));
    std::tie(digits.test_x, digits.test_y) = read_optdigits(data_file("optdigits.tes.gz"));
  } else {
    digits = load_mnist(folder);
  }
  digits.classes = std::max(digits.train_y.max().item<std::int64_t>(), digits.test_y.max().item<std::int64_t>()) + 1;
  return digits;
}

std::vector<std::string> Digits::class_names() const {
  std::vector<std::string> names;
  for (std::int64_t digit = 0; digit < classes; ++digit) {
    names.push_back(fmt::format("{}", digit));
  }
  return names;
}

Tensor as_images(const Tensor& rows, std::int64_t side) {
  const std::int64_t count = rows.size(0);
  if (rows.size(1) == 28 * 28) {
    return rows.reshape({count, 1, 28, 28});
  }
  check<ConfigError>(rows.size(1) == 8 * 8, "--data: images must have 28x28 or 8x8 pixels, got {} of them",
                     rows.size(1));
  const std::int64_t factor = side / 8;
  const std::int64_t inner = 8 * factor;
  const std::int64_t border = (side - inner) / 2;
  const Tensor images = zeros({count, 1, side, side}, {.dtype = rows.dtype()});
  images.narrow(2, border, inner)
      .narrow(3, border, inner)
      .copy_(rows.reshape({count, 1, 8, 1, 8, 1})
                 .expand({count, 1, 8, factor, 8, factor})
                 .reshape({count, 1, inner, inner}));
  return images;
}

}  // namespace example
