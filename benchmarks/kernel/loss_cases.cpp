#include <tandem/kernels/cross_entropy.h>
#include <tandem/kernels/elementwise_loss.h>
#include <tandem/kernels/nll_loss.h>

#include "kernel/case.h"

// Losses and their gradients.

namespace bench::kernel {

namespace {

using namespace tandem::kernels;

// The type that a kernel of `dtype` computes in.
DType computed_in(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

void* one_of(Data& data, DType dtype) { return data.random(dtype, 1, 0, 1); }

enum class Entropy : std::uint8_t { loss, with_gradient, gradient };

// With class indices. The gradient may be written along with the loss (with_gradient).
Case cross_entropy_case(DType dtype, Size size, Entropy part) {
  const std::int64_t classes = size == Size::tiny ? 10 : 1000;
  const std::int64_t rows = rows_of(size, classes);
  Case made;
  Data& data = made.data;
  const DType wide = computed_in(dtype);
  const void* logits = data.random(dtype, rows * classes, 4);
  void* gradient = data.zeros(dtype, rows * classes);
  const ClassTarget target{.indices = data.indices(rows, classes)};
  CrossEntropy forward{.dtype = dtype,
                       .loss_per_row = false,
                       .mean = true,
                       .rows = rows,
                       .classes = classes,
                       .logits = logits,
                       .target = target,
                       .normalizer = data.zeros(wide, 2 * rows),
                       .scale = data.zeros(wide, 1),
                       .loss = data.zeros(dtype, 1)};
  const auto operation = [&](const char* name) {
    made.operation = {
        .name = name, .dtype = "", .sizes = {rows, classes}, .in = {logits, target.indices}, .out = {gradient}};
  };
  if (part == Entropy::gradient) {
    launches(forward)();  // the normalizers
    made.run = launches(CrossEntropyGrad{.dtype = dtype,
                                         .loss_per_row = false,
                                         .rows = rows,
                                         .classes = classes,
                                         .logits = logits,
                                         .target = target,
                                         .normalizer = forward.normalizer,
                                         .scale = forward.scale,
                                         .grad = one_of(data, dtype),
                                         .logits_grad = gradient});
  } else if (part == Entropy::with_gradient) {
    forward.logits_grad = gradient;
    made.run = launches(
        forward,
        RescaleGradient{.dtype = dtype, .count = rows * classes, .grad = one_of(data, dtype), .gradient = gradient});
    operation("cross_entropy with gradient");
  } else {
    made.run = launches(forward);
    operation("cross_entropy");
  }
  made.passes = {{reads(logits, dtype, rows * classes)}};
  if (part != Entropy::loss) {
    made.passes[0].push_back(writes(gradient, dtype, rows * classes));
  }
  return made;
}

// With probabilities as targets; the gradient of these probabilities.
Case target_gradient_case(DType dtype, Size size, bool gradient) {
  const std::int64_t classes = size == Size::tiny ? 10 : 1000;
  const std::int64_t rows = rows_of(size, classes);
  Case made;
  Data& data = made.data;
  const DType wide = computed_in(dtype);
  const void* logits = data.random(dtype, rows * classes, 4);
  const void* probabilities = data.random(dtype, rows * classes, 0.001, 0.001);
  void* out = data.zeros(dtype, rows * classes);
  const ClassTarget target{.probabilities = probabilities};
  const CrossEntropy forward{.dtype = dtype,
                             .loss_per_row = false,
                             .mean = true,
                             .rows = rows,
                             .classes = classes,
                             .logits = logits,
                             .target = target,
                             .normalizer = data.zeros(wide, 2 * rows),
                             .scale = data.zeros(wide, 1),
                             .loss = data.zeros(dtype, 1)};
  made.run = launches(forward);
  made.passes = {{reads(logits, dtype, rows * classes), reads(probabilities, dtype, rows * classes)}};
  if (gradient) {
    made.run();  // the normalizers
    made.run = launches(CrossEntropyTargetGrad{.dtype = dtype,
                                               .loss_per_row = false,
                                               .rows = rows,
                                               .classes = classes,
                                               .logits = logits,
                                               .target = target,
                                               .normalizer = forward.normalizer,
                                               .scale = forward.scale,
                                               .grad = one_of(data, dtype),
                                               .probabilities_grad = out});
    made.passes = {{reads(logits, dtype, rows * classes), writes(out, dtype, rows * classes)}};
  }
  return made;
}

// Ten classes: every cache line of the log-probabilities has an element that is read.
Case nll_case(DType dtype, Size size, bool gradient) {
  constexpr std::int64_t kClasses = 10;
  const std::int64_t rows = rows_of(size, kClasses);
  Case made;
  Data& data = made.data;
  const void* log_probs = data.random(dtype, rows * kClasses, 1, -2);
  const std::int64_t* indices = data.indices(rows, kClasses);
  void* scale = data.random(computed_in(dtype), 1, 0, 1);
  void* out = data.zeros(dtype, rows * kClasses);
  if (gradient) {
    made.run = launches(NegativeLogLikelihoodGrad{.dtype = dtype,
                                                  .loss_per_row = false,
                                                  .outer = rows,
                                                  .classes = kClasses,
                                                  .inner = 1,
                                                  .indices = indices,
                                                  .weight = nullptr,
                                                  .ignore_index = -100,
                                                  .scale = scale,
                                                  .grad = one_of(data, dtype),
                                                  .log_probs_grad = out});
    made.passes = {{writes(out, dtype, rows * kClasses), reads(indices, DType::i64, rows)}};
  } else {
    made.run = launches(NegativeLogLikelihood{.dtype = dtype,
                                              .loss_per_row = false,
                                              .mean = true,
                                              .outer = rows,
                                              .classes = kClasses,
                                              .inner = 1,
                                              .log_probs = log_probs,
                                              .indices = indices,
                                              .weight = nullptr,
                                              .ignore_index = -100,
                                              .scale = scale,
                                              .loss = data.zeros(dtype, 1)});
    made.passes = {{reads(log_probs, dtype, rows * kClasses), reads(indices, DType::i64, rows)}};
    made.operation = {
        .name = "nll_loss", .dtype = "", .sizes = {rows, kClasses}, .in = {log_probs, indices}, .out = {}};
  }
  return made;
}

struct NamedLoss {
  LossOp op;
  const char* name;
};
constexpr NamedLoss kLosses[] = {{LossOp::squared, "mse_loss"},    {LossOp::absolute, "l1_loss"},
                                 {LossOp::smooth_l1, "smooth_l1"}, {LossOp::huber, "huber"},
                                 {LossOp::binary, "binary"},       {LossOp::binary_logits, "binary_logits"}};

enum class LossPart : std::uint8_t { sum, with_gradient, gradient };

Case elementwise_loss_case(DType dtype, Size size, const NamedLoss& loss, LossPart part) {
  const std::int64_t count = count_of(size);
  Case made;
  Data& data = made.data;
  const bool probability = loss.op == LossOp::binary;
  const void* input = data.random(dtype, count, probability ? 0.49 : 2, probability ? 0.5 : 0);
  const void* target = data.random(dtype, count, 0.5, 0.5);
  void* gradient = data.zeros(dtype, count);
  const double scale = 1 / static_cast<double>(count);
  if (part == LossPart::gradient) {
    made.run = launches(ElementwiseLossGrad{.op = loss.op,
                                            .dtype = dtype,
                                            .loss_per_element = false,
                                            .of_target = false,
                                            .scale = scale,
                                            .count = count,
                                            .input = input,
                                            .target = target,
                                            .grad = one_of(data, dtype),
                                            .result = gradient});
  } else {
    made.run = launches(ElementwiseLoss{.op = loss.op,
                                        .dtype = dtype,
                                        .loss_per_element = false,
                                        .scale = scale,
                                        .count = count,
                                        .input = input,
                                        .target = target,
                                        .loss = data.zeros(dtype, 1),
                                        .input_grad = part == LossPart::with_gradient ? gradient : nullptr});
  }
  made.passes = {{reads(input, dtype, count), reads(target, dtype, count)}};
  if (part != LossPart::sum) {
    made.passes[0].push_back(writes(gradient, dtype, count));
  }
  if (part == LossPart::sum) {
    made.operation = {.name = loss.name, .dtype = "", .sizes = {count}, .in = {input, target}, .out = {}};
  }
  return made;
}

Case rescale_case(DType dtype, Size size) {
  const std::int64_t count = count_of(size);
  Case made;
  void* gradient = made.data.random(dtype, count);
  made.run = launches(
      RescaleGradient{.dtype = dtype, .count = count, .grad = made.data.random(dtype, 1, 0, -1), .gradient = gradient});
  made.passes = {{updates(gradient, dtype, count)}};
  return made;
}

}  // namespace

void add_losses(Cases& cases) {
  const std::string entropy = "cross_entropy";
  cases.add(entropy, "loss", kFloats,
            [](DType dtype, Size size) { return cross_entropy_case(dtype, size, Entropy::loss); });
  cases.add(entropy, "loss with gradient", {kF32},
            [](DType dtype, Size size) { return cross_entropy_case(dtype, size, Entropy::with_gradient); });
  cases.add(entropy, "gradient", kFloats,
            [](DType dtype, Size size) { return cross_entropy_case(dtype, size, Entropy::gradient); });
  cases.add(entropy, "loss of probabilities", {kF32},
            [](DType dtype, Size size) { return target_gradient_case(dtype, size, false); });
  cases.add(entropy, "gradient of probabilities", {kF32},
            [](DType dtype, Size size) { return target_gradient_case(dtype, size, true); });
  cases.add("nll_loss", "loss", kFloats, [](DType dtype, Size size) { return nll_case(dtype, size, false); });
  cases.add("nll_loss", "gradient", kFloats, [](DType dtype, Size size) { return nll_case(dtype, size, true); });
  for (const NamedLoss& loss : kLosses) {
    const std::vector<DType> dtypes = loss.op == LossOp::squared ? kFloats : std::vector<DType>{kF32};
    const auto add = [&](const char* name, LossPart part) {
      cases.add("elementwise_loss", std::string(loss.name) + name,
                part == LossPart::with_gradient ? std::vector<DType>{kF32} : dtypes,
                [loss, part](DType dtype, Size size) { return elementwise_loss_case(dtype, size, loss, part); });
    };
    add("", LossPart::sum);
    add(" gradient", LossPart::gradient);
    if (loss.op < LossOp::binary) {
      add(" with gradient", LossPart::with_gradient);
    }
  }
  cases.add("elementwise_loss", "rescale gradient", kFloats, rescale_case);
}

}  // namespace bench::kernel
