#include "gpu/cases.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace bench::gpu {

namespace {

using tandem::DType;
using tandem::telemetry::Fields;

constexpr double kRate = 1e-4;

std::string text(DType dtype) { return std::string(tandem::name(dtype)); }

// Reduces a size for an emulated GPU.
std::int64_t fewer(std::int64_t count, bool smoke) { return smoke ? std::max<std::int64_t>(count / 64, 2) : count; }

TrainCase train(const std::string& workload, const Spec& spec, DType dtype, bool tf32 = false) {
  return {workload, fmt::format("{} batch {} {}", model_name(spec), spec.batch, tf32 ? "tf32" : text(dtype)), spec,
          dtype, tf32};
}

Spec classifier(std::vector<std::int64_t> sizes, std::int64_t batch) {
  return {.sizes = std::move(sizes),
          .loss = Loss::cross_entropy,
          .batch = batch,
          .rule = Rule::adam,
          .momentum = 0,
          .lr = kRate};
}

// W3
std::vector<TrainCase> wide_cases(bool smoke) {
  std::vector<TrainCase> cases;
  for (const std::int64_t batch : {1024, 8192}) {
    const std::int64_t width = fewer(4096, smoke);
    cases.push_back(train("W3",
                          {.sizes = {width, width, width, width, width},
                           .loss = Loss::mse,
                           .batch = fewer(batch, smoke),
                           .rule = Rule::adam,
                           .momentum = 0,
                           .lr = kRate},
                          DType::bf16));
  }
  return cases;
}

// W8
std::vector<TrainCase> net_cases(bool smoke) {
  std::vector<TrainCase> cases;
  const auto add = [&](const char* net, std::int64_t batch) {
    Spec spec = classifier({}, smoke ? 2 : batch);
    spec.net = net;
    for (const auto& [dtype, tf32] : {std::pair{DType::f32, false}, {DType::f32, true}, {DType::bf16, false}}) {
      for (const bool channels_last : {false, true}) {
        cases.push_back(train("W8", spec, dtype, tf32));
        cases.back().channels_last = channels_last;
        cases.back().name += channels_last ? " channels-last" : "";
      }
    }
  };
  if (smoke) {
    add("lenet", 2);
    return cases;
  }
  add("resnet20", 128);
  add("resnet18", 64);
  return cases;
}

}  // namespace

std::string model_name(const Spec& spec) {
  return spec.net.empty() ? fmt::format("{}", fmt::join(spec.sizes, "-")) : spec.net;
}

std::vector<TrainCase> train_cases(const std::string& workload, bool smoke) {
  if (workload == "W1") {
    return {train("W1", smoke ? classifier({12, 16, 12, 10}, 4) : classifier({128, 256, 128, 10}, 16), DType::f32)};
  }
  if (workload == "W2") {
    const Spec spec = smoke ? classifier({24, 16, 12, 10}, 8) : classifier({784, 512, 256, 10}, 128);
    return {train("W2", spec, DType::f32), train("W2", spec, DType::f32, true), train("W2", spec, DType::bf16)};
  }
  return workload == "W8" ? net_cases(smoke) : wide_cases(smoke);
}

std::vector<AdamCase> adam_cases(bool smoke) {
  std::vector<AdamCase> cases;
  const auto add = [&](const char* name, std::int64_t tensors, std::int64_t elements, DType dtype) {
    cases.push_back({.name = fmt::format("{} {}", name, text(dtype)),
                     .tensors = smoke ? std::min<std::int64_t>(tensors, 4) : tensors,
                     .elements = smoke ? 100 : elements,
                     .dtype = dtype});
  };
  constexpr std::int64_t kSquare = 4096 * 4096;
  add("67M in 4", 4, kSquare, DType::f32);
  add("67M in 4", 4, kSquare, DType::bf16);
  add("268M in 16", 16, kSquare, DType::f32);
  add("64M in 1000", 1000, 64'000, DType::f32);
  add("10M in 10000", 10'000, 1000, DType::f32);
  return cases;
}

std::vector<CrossEntropyCase> cross_entropy_cases(bool smoke) {
  std::vector<CrossEntropyCase> cases;
  for (const std::int64_t classes : {1000, 50304}) {
    for (const DType dtype : {DType::bf16, DType::f32}) {
      const CrossEntropyCase c{
          .name = "", .rows = fewer(8192, smoke), .classes = fewer(classes, smoke), .dtype = dtype};
      cases.push_back(c);
      cases.back().name = fmt::format("{} x {} {}", c.rows, c.classes, text(dtype));
    }
  }
  return cases;
}

std::vector<PassCase> pass_cases(bool smoke) {
  std::vector<PassCase> cases;
  const std::int64_t rows = fewer(8192, smoke);
  const std::int64_t columns = fewer(4096, smoke);
  // `passes` is the number of times that each element crosses the bus. A layer norm's gradient reads x and dy and
  // writes dx.
  const auto add = [&](const char* op, double passes, DType dtype) {
    const double bytes = passes * static_cast<double>(rows * columns) * static_cast<double>(tandem::item_size(dtype));
    cases.push_back({.name = fmt::format("{} {} x {} {}", op, rows, columns, text(dtype)),
                     .op = op,
                     .rows = rows,
                     .columns = columns,
                     .dtype = dtype,
                     .bytes = bytes});
  };
  for (const DType dtype : {DType::bf16, DType::f32}) {
    add("bias_relu", 2, dtype);
    add("bias_grad", 1, dtype);
    add("layer_norm", 2, dtype);
    add("layer_norm_grad", 5, dtype);
  }
  add("cast", 1.5, DType::f32);
  return cases;
}

std::vector<HostCase> host_cases() {
  std::vector<HostCase> cases;
  for (const char* op : {"add", "relu", "matmul", "linear_grad"}) {
    cases.push_back({.name = fmt::format("{} 16 x 16", op), .op = op});
  }
  return cases;
}

Fields fields_of(const TrainCase& c) {
  return {{"kind", "train"},
          {"workload", c.workload},
          {"case", c.name},
          {"model", model_name(c.spec)},
          {"loss", c.spec.loss == Loss::mse ? "mse" : "ce"},
          {"batch", c.spec.batch},
          {"lr", c.spec.lr},
          {"dtype", text(c.dtype)},
          {"tf32", c.tf32},
          {"channels_last", c.channels_last}};
}

Fields fields_of(const AdamCase& c) {
  return {{"kind", "adam"},         {"workload", "W4"}, {"case", c.name},        {"tensors", c.tensors},
          {"elements", c.elements}, {"lr", kRate},      {"dtype", text(c.dtype)}};
}

Fields fields_of(const CrossEntropyCase& c) {
  return {{"kind", "cross_entropy"}, {"workload", "W5"},     {"case", c.name},
          {"rows", c.rows},          {"classes", c.classes}, {"dtype", text(c.dtype)}};
}

Fields fields_of(const PassCase& c) {
  return {{"kind", "pass"}, {"workload", "W7"},     {"case", c.name},        {"op", c.op},
          {"rows", c.rows}, {"columns", c.columns}, {"dtype", text(c.dtype)}};
}

Fields fields_of(const HostCase& c) { return {{"kind", "host"}, {"workload", "host"}, {"case", c.name}, {"op", c.op}}; }

}  // namespace bench::gpu
