#include <tandem/kernels/batch_norm.h>
#include <tandem/kernels/layer_norm.h>
#include <tandem/kernels/softmax.h>

#include "kernel/case.h"

// Softmax and norms, forward and backward.

namespace bench::kernel {

namespace {

using namespace tandem::kernels;

struct Extent {
  std::int64_t outer, size, inner;
  std::int64_t count() const { return outer * size * inner; }
};

// Rows of 1000, or 64 channels of an image.
Extent softmax_extent(Size size, bool rows) {
  if (rows) {
    const std::int64_t columns = size == Size::tiny ? 10 : 1000;
    return {rows_of(size, columns), columns, 1};
  }
  return size == Size::tiny ? Extent{2, 3, 5} : Extent{count_of(size) / (64 * 512), 64, 512};
}

Case softmax_case(DType dtype, Size size, bool rows, bool log) {
  const Extent of = softmax_extent(size, rows);
  Case made;
  const void* in = made.data.random(dtype, of.count(), 4);
  void* out = made.data.zeros(dtype, of.count());
  made.run = launches(Softmax{dtype, log, of.outer, of.size, of.inner, in, out});
  made.passes = {{reads(in, dtype, of.count()), writes(out, dtype, of.count())}};
  made.operation = {.name = log ? "log_softmax" : "softmax",
                    .dtype = "",
                    .sizes = {of.outer, of.size, of.inner},
                    .in = {in},
                    .out = {out}};
  return made;
}

Case softmax_grad_case(DType dtype, Size size, bool rows, bool log) {
  const Extent of = softmax_extent(size, rows);
  Case made;
  const void* grad = made.data.random(dtype, of.count());
  const void* y = made.data.random(dtype, of.count(), 0.1, log ? -3 : 0.5);
  void* in_grad = made.data.zeros(dtype, of.count());
  made.run = launches(SoftmaxGrad{dtype, log, Accumulate::no, of.outer, of.size, of.inner, grad, y, in_grad});
  made.passes = {{reads(grad, dtype, of.count()), reads(y, dtype, of.count()), writes(in_grad, dtype, of.count())}};
  made.operation = {.name = log ? "log_softmax gradient" : "softmax gradient",
                    .dtype = "",
                    .sizes = {of.outer, of.size, of.inner},
                    .in = {grad, y},
                    .out = {in_grad}};
  return made;
}

constexpr double kEps = 1e-5;

std::int64_t layer_norm_size(Size size) { return size == Size::tiny ? 10 : 1024; }

Case layer_norm_case(DType dtype, Size size) {
  const std::int64_t columns = layer_norm_size(size);
  const std::int64_t rows = rows_of(size, columns);
  Case made;
  const void* in = made.data.random(dtype, rows * columns);
  const void* weight = made.data.random(dtype, columns);
  const void* bias = made.data.random(dtype, columns);
  void* out = made.data.zeros(dtype, rows * columns);
  auto* statistics = static_cast<NormStatistics*>(made.data.zeros(DType::f64, 2 * rows));
  made.run = launches(LayerNorm{dtype, rows, columns, kEps, in, weight, bias, statistics, out});
  made.passes = {{reads(in, dtype, rows * columns), writes(out, dtype, rows * columns)}};
  made.operation = {
      .name = "layer_norm", .dtype = "", .sizes = {rows, columns}, .in = {in, weight, bias}, .out = {out}};
  return made;
}

Case layer_norm_grad_case(DType dtype, Size size) {
  const std::int64_t columns = layer_norm_size(size);
  const std::int64_t rows = rows_of(size, columns);
  Case made;
  const void* in = made.data.random(dtype, rows * columns);
  const void* grad = made.data.random(dtype, rows * columns);
  const void* weight = made.data.random(dtype, columns);
  auto* statistics = static_cast<NormStatistics*>(made.data.zeros(DType::f64, 2 * rows));
  for (std::int64_t row = 0; row < rows; ++row) {
    statistics[row] = {0, 1.7};
  }
  void* in_grad = made.data.zeros(dtype, rows * columns);
  void* weight_grad = made.data.zeros(dtype, columns);
  void* bias_grad = made.data.zeros(dtype, columns);
  made.run = launches(LayerNormGrad{.dtype = dtype,
                                    .rows = rows,
                                    .size = columns,
                                    .grad = grad,
                                    .in = in,
                                    .weight = weight,
                                    .statistics = statistics,
                                    .in_grad = in_grad,
                                    .weight_grad = weight_grad,
                                    .bias_grad = bias_grad});
  made.passes = {
      {reads(grad, dtype, rows * columns), reads(in, dtype, rows * columns), writes(in_grad, dtype, rows * columns)}};
  made.operation = {.name = "layer_norm gradient",
                    .dtype = "",
                    .sizes = {rows, columns},
                    .in = {grad, in, weight},
                    .out = {in_grad, weight_grad, bias_grad}};
  return made;
}

// Images of 28 x 28 with 64 channels, or rows of 512 features.
Extent batch_norm_extent(Size size, bool images) {
  if (size == Size::tiny) {
    return images ? Extent{2, 3, 100} : Extent{5, 7, 1};
  }
  return images ? Extent{1 + count_of(size) / (64 * 784), 64, 784} : Extent{count_of(size) / 512, 512, 1};
}

// In training the statistics of all values precede the first result, so the input has to be read twice.
Case batch_norm_case(DType dtype, Size size, bool images, bool training) {
  const Extent of = batch_norm_extent(size, images);
  Case made;
  const void* in = made.data.random(dtype, of.count());
  const void* weight = made.data.random(dtype, of.size);
  const void* bias = made.data.random(dtype, of.size);
  void* mean = made.data.zeros(dtype, of.size);
  void* variance = made.data.random(dtype, of.size, 0.1, 1);
  auto* statistics = static_cast<NormStatistics*>(made.data.zeros(DType::f64, 2 * of.size));
  void* out = made.data.zeros(dtype, of.count());
  made.run = launches(BatchNorm{.dtype = dtype,
                                .training = training,
                                .outer = of.outer,
                                .channels = of.size,
                                .inner = of.inner,
                                .eps = kEps,
                                .momentum = {0.1},
                                .in = in,
                                .weight = weight,
                                .bias = bias,
                                .running_mean = mean,
                                .running_var = variance,
                                .statistics = statistics,
                                .out = out});
  if (training) {
    made.passes.push_back({reads(in, dtype, of.count())});
  }
  made.passes.push_back({reads(in, dtype, of.count()), writes(out, dtype, of.count())});
  made.operation = {.name = training ? "batch_norm" : "batch_norm evaluation",
                    .dtype = "",
                    .sizes = {of.outer, of.size, of.inner},
                    .in = {in, weight, bias, mean, variance},
                    .out = {out}};
  return made;
}

Case batch_norm_grad_case(DType dtype, Size size, bool images) {
  const Extent of = batch_norm_extent(size, images);
  Case made;
  const void* in = made.data.random(dtype, of.count());
  const void* grad = made.data.random(dtype, of.count());
  const void* weight = made.data.random(dtype, of.size);
  auto* statistics = static_cast<NormStatistics*>(made.data.zeros(DType::f64, 2 * of.size));
  for (std::int64_t channel = 0; channel < of.size; ++channel) {
    statistics[channel] = {0, 1.7};
  }
  void* in_grad = made.data.zeros(dtype, of.count());
  made.run = launches(BatchNormGrad{.dtype = dtype,
                                    .training = true,
                                    .outer = of.outer,
                                    .channels = of.size,
                                    .inner = of.inner,
                                    .grad = grad,
                                    .in = in,
                                    .weight = weight,
                                    .statistics = statistics,
                                    .in_grad = in_grad,
                                    .weight_grad = made.data.zeros(dtype, of.size),
                                    .bias_grad = made.data.zeros(dtype, of.size)});
  made.passes = {{reads(grad, dtype, of.count()), reads(in, dtype, of.count())},
                 {reads(grad, dtype, of.count()), reads(in, dtype, of.count()), writes(in_grad, dtype, of.count())}};
  made.operation = {.name = "batch_norm gradient",
                    .dtype = "",
                    .sizes = {of.outer, of.size, of.inner},
                    .in = {grad, in, weight},
                    .out = {in_grad}};
  return made;
}

}  // namespace

void add_rows(Cases& cases) {
  for (const bool rows : {true, false}) {
    for (const bool log : {false, true}) {
      const std::string name = std::string(log ? "log_softmax" : "softmax") + (rows ? " of rows" : " of channels");
      const std::vector<DType> dtypes = rows ? kFloats : std::vector<DType>{kF32};
      cases.add("softmax", name, dtypes, [=](DType dtype, Size size) { return softmax_case(dtype, size, rows, log); });
      cases.add("softmax", name + " gradient", dtypes,
                [=](DType dtype, Size size) { return softmax_grad_case(dtype, size, rows, log); });
    }
  }
  cases.add("layer_norm", "forward", kFloats, layer_norm_case);
  cases.add("layer_norm", "gradient", kFloats, layer_norm_grad_case);
  for (const bool images : {true, false}) {
    const std::string of = images ? " of images" : " of rows";
    const std::vector<DType> dtypes = images ? kFloats : std::vector<DType>{kF32};
    cases.add("batch_norm", "training" + of, dtypes,
              [=](DType dtype, Size size) { return batch_norm_case(dtype, size, images, true); });
    cases.add("batch_norm", "evaluation" + of, dtypes,
              [=](DType dtype, Size size) { return batch_norm_case(dtype, size, images, false); });
    cases.add("batch_norm", "gradient" + of, dtypes,
              [=](DType dtype, Size size) { return batch_norm_grad_case(dtype, size, images); });
  }
}

}  // namespace bench::kernel
