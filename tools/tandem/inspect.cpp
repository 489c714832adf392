#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <tandem/checkpoint/generations.h>
#include <tandem/checkpoint/safetensors.h>
#include <tandem/core/error.h>
#include <tandem/core/file.h>
#include <tandem/telemetry/text_screen.h>

#include "command_line/command_line.h"
#include "command_line/program.h"
#include "tandem/commands.h"

namespace tool {

namespace {

using namespace tandem;
using checkpoint::Generations;

constexpr int kEqual = 0;
constexpr int kDifferent = 1;
constexpr std::size_t kShownHash = 12;  // digits
constexpr std::size_t kShownText = 60;

std::string size_text(std::uint64_t bytes) {
  constexpr std::uint64_t kKi = 1024;
  return bytes < kKi         ? fmt::format("{} B", bytes)
         : bytes < kKi * kKi ? fmt::format("{:.1f} KiB", static_cast<double>(bytes) / 1024)
                             : fmt::format("{:.1f} MiB", static_cast<double>(bytes) / 1024 / 1024);
}

// One line of text without control characters.
std::string printable(std::string text) {
  std::replace_if(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '.');
  return text.size() > kShownText ? text.substr(0, kShownText) + "..." : text;
}

// The tensors that a path stands for: those of one file, or of all files of a run's newest checkpoint.
class Content {
 public:
  explicit Content(const std::string& path) : path_(path) {
    if (!std::filesystem::is_directory(path)) {
      add(path, SafetensorsFile(path));
      return;
    }
    const std::string folder = path + "/checkpoints";
    const std::vector<std::int64_t> steps = Generations::steps_in(folder);
    if (steps.empty()) {
      throw IoError(fmt::format("'{}': this folder has no checkpoints of a run, which would be in {}", path, folder));
    }
    path_ = Generations::path_in(folder, steps.front());
    Generations::for_each_file(folder, steps.front(),
                               [&](const std::string& name, const SafetensorsFile& file) { add(name, file); });
  }

  const std::string& path() const { return path_; }
  const std::vector<SafetensorsFile::Info>& tensors() const { return tensors_; }
  Tensor read(const std::string& name) const { return SafetensorsFile(place_.at(name)).read(name); }
  const auto& metadata() const { return metadata_; }
  bool has_hashes() const { return has_hashes_; }

 private:
  void add(const std::string& path, const SafetensorsFile& file) {
    file.verify();
    if (path == path_) {
      metadata_ = file.metadata();
      has_hashes_ = file.has_hashes();
    }
    for (SafetensorsFile::Info& tensor : file.tensors()) {
      place_[tensor.name] = path;
      tensors_.push_back(std::move(tensor));
    }
  }

  std::string path_;  // of the first file
  std::vector<SafetensorsFile::Info> tensors_;
  std::map<std::string, std::string> place_;  // files of tensors
  std::vector<std::pair<std::string, std::string>> metadata_;
  bool has_hashes_ = false;
};

void show(const Content& file, bool json) {
  const std::vector<SafetensorsFile::Info>& tensors = file.tensors();
  std::uint64_t bytes = 0;
  std::int64_t elements = 0;
  std::size_t longest = 4;
  for (const SafetensorsFile::Info& tensor : tensors) {
    bytes += tensor.bytes;
    elements += tensor.shape.numel();
    longest = std::max(longest, printable(tensor.name).size());
  }
  if (json) {
    telemetry::Fields fields{{"file", file.path()},
                             {"tensors", static_cast<std::int64_t>(tensors.size())},
                             {"elements", elements},
                             {"bytes", static_cast<std::int64_t>(bytes)},
                             {"hashed", file.has_hashes()}};
    std::vector<std::string> names, types, shapes, hashes;
    for (const SafetensorsFile::Info& tensor : tensors) {
      names.push_back(tensor.name);
      types.push_back(tensor.dtype);
      shapes.push_back(to_string(tensor.shape));
      hashes.push_back(tensor.hash);
    }
    fields.push_back({"names", names});
    fields.push_back({"dtypes", types});
    fields.push_back({"shapes", shapes});
    fields.push_back({"hashes", hashes});
    for (const auto& [key, text] : file.metadata()) {
      fields.push_back({"metadata." + key, text});
    }
    cli::print_result_json(fields);
    return;
  }
  for (const SafetensorsFile::Info& tensor : tensors) {
    fmt::print("{:<{}}  {:<7} {:<20} {:>10}  {}\n", printable(tensor.name), longest, tensor.dtype,
               to_string(tensor.shape), size_text(tensor.bytes), tensor.hash.substr(0, kShownHash));
  }
  for (const auto& [key, text] : file.metadata()) {
    fmt::print("{} = {}\n", printable(key), printable(text));
  }
  fmt::print("{} tensors, {} elements, {}; {}\n", tensors.size(), elements, size_text(bytes),
             file.has_hashes() ? "all hashes match" : "the file has no hashes");
}

// How the values of two tensors of one type and shape differ; empty if they are equal, bit by bit.
std::string difference(const Tensor& a, const Tensor& b) {
  const std::size_t item = item_size(a.dtype());
  const auto* left = static_cast<const char*>(a.raw().data());
  const auto* right = static_cast<const char*>(b.raw().data());
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    const std::size_t at = static_cast<std::size_t>(i) * item;
    count += std::memcmp(left + at, right + at, item) != 0 ? 1 : 0;
  }
  if (count == 0) {
    return {};
  }
  const std::vector<double> x = a.to(DType::f64).to_vector<double>();
  const std::vector<double> y = b.to(DType::f64).to_vector<double>();
  double largest = 0;
  bool has_nan = false;
  for (std::size_t i = 0; i < x.size(); ++i) {
    has_nan = has_nan || std::isnan(x[i]) != std::isnan(y[i]);
    largest = std::max(largest, std::abs(x[i] - y[i]));
  }
  return fmt::format("{} of {} elements differ, by {:.3g} at most{}", count, a.numel(), largest,
                     has_nan ? ", and one is NaN where the other is not" : "");
}

std::string kind_of(const SafetensorsFile::Info& tensor) {
  return fmt::format("{} {}", tensor.dtype, to_string(tensor.shape));
}

int compare(const Content& a, const Content& b, bool json) {
  std::map<std::string, SafetensorsFile::Info> others;
  for (const SafetensorsFile::Info& tensor : b.tensors()) {
    others[tensor.name] = tensor;
  }
  std::map<std::string, std::string> differences;
  std::size_t equal = 0;
  for (const SafetensorsFile::Info& tensor : a.tensors()) {
    const auto other = others.find(tensor.name);
    std::string text = "only in " + a.path();
    if (other != others.end()) {
      text = kind_of(tensor) != kind_of(other->second) ? kind_of(tensor) + " and " + kind_of(other->second)
             : !tensor.hash.empty() && tensor.hash == other->second.hash
                 ? std::string()
                 : difference(a.read(tensor.name), b.read(tensor.name));
      others.erase(other);
    }
    if (text.empty()) {
      ++equal;
    } else {
      differences[tensor.name] = text;
    }
  }
  for (const auto& [name, tensor] : others) {
    differences[name] = "only in " + b.path();
  }
  using Texts = std::map<std::string, std::string>;
  const Texts left(a.metadata().begin(), a.metadata().end());
  const Texts right(b.metadata().begin(), b.metadata().end());
  if (left != right) {
    differences["__metadata__"] = "the texts differ";
  }
  if (json) {
    std::vector<std::string> names, texts;
    for (const auto& [name, text] : differences) {
      names.push_back(name);
      texts.push_back(text);
    }
    cli::print_result_json({{"equal", differences.empty()}, {"names", names}, {"differences", texts}});
  } else {
    for (const auto& [name, text] : differences) {
      fmt::print("{}: {}\n", printable(name), text);
    }
    if (differences.empty()) {
      fmt::print("all {} tensors are equal, bit by bit\n", equal);
    }
  }
  return differences.empty() ? kEqual : kDifferent;
}

// The checkpoints of a run, the newest first, and whether they are whole.
void list(const std::string& run) {
  const std::string folder = run + "/checkpoints";
  for (const std::int64_t step : Generations::steps_in(folder)) {
    std::string state;
    std::uint64_t bytes = 0;
    int files = 0;
    try {
      Generations::for_each_file(folder, step, [&](const std::string&, const SafetensorsFile& file) {
        ++files;
        for (const SafetensorsFile::Info& tensor : file.tensors()) {
          bytes += tensor.bytes;
        }
        file.verify();
      });
      state = files > 1 ? fmt::format("whole, in {} files", files) : "whole";
    } catch (const IoError& error) {
      state = printable(error.what());
    }
    fmt::print("step {:>10}  {:>10}  {}\n", step, size_text(bytes), state);
  }
}

}  // namespace

int inspect(int argc, const char* const* argv) {
  bool json = false;
  std::vector<std::string> files;
  CLI::App app(
      "Prints what a safetensors file or a run's newest checkpoint holds, or how two\ndiffer; of a run, also its "
      "numbers and its diagnosis.",
      "tandem inspect");
  app.add_option("files", files, "A file or run folder, or two to compare")
      ->type_name("FILE|RUN")
      ->required()
      ->expected(1, 2);
  app.add_flag("--json", json, "Print one JSON object");
  app.footer(
      "With two files the exit code is 0 if they hold equal tensors and texts, and\n"
      "1 if not, or if one cannot be read.\n\n"
      "Examples:\n"
      "  tandem inspect model.safetensors\n"
      "  tandem inspect before.safetensors after.safetensors\n"
      "  tandem inspect runs/mlp-20261126-0912\n"
      "  tandem inspect model.safetensors --json | jq .hashes");
  if (const auto code = cli::parse(app, argc, argv)) {
    return *code;
  }
  if (files.size() == 2) {
    return compare(Content(files[0]), Content(files[1]), json);
  }
  const bool is_run = std::filesystem::exists(files[0] + "/metrics.jsonl");
  if (is_run && !json) {
    fmt::print("{}{}", telemetry::text_screen(files[0], {.columns = 100, .rows = 12, .has_unicode = false}),
               core::read_small_file(files[0] + "/diagnosis.txt").value_or(""));
  }
  if (is_run && !json && Generations::steps_in(files[0] + "/checkpoints").empty()) {
    return 0;
  }
  if (std::filesystem::is_directory(files[0]) && !json) {
    list(files[0]);
  }
  show(Content(files[0]), json);
  return 0;
}

}  // namespace tool
