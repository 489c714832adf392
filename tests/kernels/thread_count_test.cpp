#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/kernels/batch_norm.h>
#include <tandem/kernels/clip.h>
#include <tandem/kernels/copy.h>
#include <tandem/kernels/cross_entropy.h>
#include <tandem/kernels/dropout.h>
#include <tandem/kernels/elementwise_loss.h>
#include <tandem/kernels/index.h>
#include <tandem/kernels/layer_norm.h>
#include <tandem/kernels/matmul.h>
#include <tandem/kernels/nll_loss.h>
#include <tandem/kernels/optimizer.h>
#include <tandem/kernels/pointwise.h>
#include <tandem/kernels/random.h>
#include <tandem/kernels/reduce.h>
#include <tandem/kernels/scan.h>
#include <tandem/kernels/softmax.h>

#include "kernels/arrays.h"
#include "support/thread_count.h"

// Tests every kernel that splits its work, well above the size at which it splits: any number of threads gives the same
// bits.

namespace tandem::kernels {
namespace {

using test::Rng;
using Bytes = std::vector<std::byte>;

template <class T>
Bytes bytes_of(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// Values of many magnitudes, which reveal another order of additions.
template <class T>
std::vector<T> values(std::int64_t count, std::uint64_t seed) {
  Rng rng(seed);
  auto result = test::random_values<T>(rng, count);
  for (T& value : result)
    value *= static_cast<T>(std::exp2(static_cast<double>(rng() % 20)));
  return result;
}

template <class T>
Bytes pointwise(PointwiseOp op, Accumulate accumulate, const Shape& sizes, const Shape& strides) {
  auto a = values<T>(sizes.numel(), 1);
  auto b = values<T>(sizes.numel(), 2);
  auto out = values<T>(sizes.numel(), 3);
  const test::Layout dense{.strides = contiguous_strides(sizes)};
  const Operand first = test::operand_of(a, {.strides = strides});
  const Operand second = test::operand_of(b, dense);
  launch(test::cpu(), Pointwise{.op = op,
                                .dtype = dtype_of<T>,
                                .accumulate = accumulate,
                                .loop = test::loop_of(sizes),
                                .out = test::operand_of(out, dense),
                                .in = {first, second, second},
                                .s = 1.5});
  return bytes_of(out);
}

template <class T>
Bytes reduce(ReduceOp op, const Shape& kept, const Shape& kept_strides, const Shape& reduced, const Shape& strides) {
  auto in = values<T>(kept.numel() * reduced.numel(), 4);
  std::vector<T> out(static_cast<std::size_t>(kept.numel()));
  std::vector<std::int64_t> indices(out.size());
  launch(test::cpu(), Reduce{.op = op,
                             .dtype = dtype_of<T>,
                             .kept = test::loop_of(kept),
                             .reduced = test::loop_of(reduced),
                             .out = test::operand_of(out, {.strides = contiguous_strides(kept)}),
                             .in = test::operand_of(in, {.strides = kept_strides}),
                             .in_reduced = test::operand_of(in, {.strides = strides}),
                             .indices = op != ReduceOp::sum && reduced.ndim() == 1 ? indices.data() : nullptr});
  Bytes bytes = bytes_of(out);
  const Bytes more = bytes_of(indices);
  bytes.insert(bytes.end(), more.begin(), more.end());
  return bytes;
}

template <class T>
Bytes matmul(std::int64_t m, std::int64_t n, std::int64_t k, bool transposed) {
  const auto a = values<T>(m * k, 5);
  const auto b = values<T>(k * n, 6);
  auto out = values<T>(m * n, 7);
  const auto bias = values<T>(n, 8);
  launch(test::cpu(), Matmul{.dtype = dtype_of<T>,
                             .accumulate = transposed ? Accumulate::yes : Accumulate::no,
                             .m = m,
                             .n = n,
                             .k = k,
                             .a = {a.data(), transposed ? 1 : k, transposed ? m : 1},
                             .b = {b.data(), transposed ? 1 : n, transposed ? k : 1},
                             .out = out.data(),
                             .out_stride = n,
                             .after = {.bias = bias.data(), .relu = !transposed}});
  return bytes_of(out);
}

template <class T>
Bytes softmax(bool log) {
  constexpr std::int64_t kRows = 3001;
  constexpr std::int64_t kSize = 17;
  const auto in = values<T>(kRows * kSize, 9);
  const auto grad = values<T>(kRows * kSize, 10);
  std::vector<T> out(in.size());
  auto in_grad = grad;
  launch(test::cpu(), Softmax{dtype_of<T>, log, kRows, kSize, 1, in.data(), out.data()});
  launch(test::cpu(),
         SoftmaxGrad{dtype_of<T>, log, Accumulate::yes, kRows, kSize, 1, grad.data(), out.data(), in_grad.data()});
  return bytes_of(in_grad);
}

template <class T>
Bytes cross_entropy(double label_smoothing) {
  constexpr std::int64_t kRows = 5003;
  constexpr std::int64_t kClasses = 11;
  const auto logits = values<T>(kRows * kClasses, 11);
  std::vector<std::int64_t> targets(kRows);
  for (std::size_t i = 0; i < targets.size(); ++i)
    targets[i] = static_cast<std::int64_t>(i % kClasses);
  std::vector<T> normalizer(2 * kRows);
  T scale;
  std::vector<T> loss(1);
  auto grad = values<T>(kRows * kClasses, 12);
  const auto weight = values<T>(kClasses, 15);
  const ClassTarget target{.indices = targets.data(), .weight = weight.data(), .label_smoothing = label_smoothing};
  launch(test::cpu(), CrossEntropy{.dtype = dtype_of<T>,
                                   .loss_per_row = false,
                                   .mean = true,
                                   .rows = kRows,
                                   .classes = kClasses,
                                   .logits = logits.data(),
                                   .target = target,
                                   .normalizer = normalizer.data(),
                                   .scale = &scale,
                                   .loss = loss.data()});
  launch(test::cpu(), CrossEntropyGrad{.dtype = dtype_of<T>,
                                       .loss_per_row = false,
                                       .accumulate = Accumulate::yes,
                                       .rows = kRows,
                                       .classes = kClasses,
                                       .logits = logits.data(),
                                       .target = target,
                                       .normalizer = normalizer.data(),
                                       .scale = &scale,
                                       .grad = loss.data(),
                                       .logits_grad = grad.data()});
  return bytes_of(grad);
}

template <class T>
Bytes nll_loss() {
  constexpr std::int64_t kRows = 100'003;
  constexpr std::int64_t kClasses = 5;
  const auto log_probs = values<T>(kRows * kClasses, 16);
  std::vector<std::int64_t> indices(kRows);
  for (std::size_t i = 0; i < indices.size(); ++i)
    indices[i] = static_cast<std::int64_t>(i % kClasses);
  T scale;
  std::vector<T> loss(1);
  auto grad = log_probs;
  launch(test::cpu(), NegativeLogLikelihood{.dtype = dtype_of<T>,
                                            .loss_per_row = false,
                                            .mean = true,
                                            .outer = 1,
                                            .classes = kClasses,
                                            .inner = kRows,
                                            .log_probs = log_probs.data(),
                                            .indices = indices.data(),
                                            .weight = nullptr,
                                            .ignore_index = 3,
                                            .scale = &scale,
                                            .loss = loss.data()});
  launch(test::cpu(), NegativeLogLikelihoodGrad{.dtype = dtype_of<T>,
                                                .loss_per_row = false,
                                                .outer = 1,
                                                .classes = kClasses,
                                                .inner = kRows,
                                                .indices = indices.data(),
                                                .weight = nullptr,
                                                .ignore_index = 3,
                                                .scale = &scale,
                                                .grad = loss.data(),
                                                .log_probs_grad = grad.data()});
  return bytes_of(grad);
}

template <class T>
Bytes elementwise_loss(LossOp op) {
  constexpr std::int64_t kCount = 200'003;
  const auto a = values<T>(kCount, 13);
  const auto b = values<T>(kCount, 14);
  std::vector<T> loss(1);
  auto grad = a;
  launch(test::cpu(), ElementwiseLoss{.op = op,
                                      .dtype = dtype_of<T>,
                                      .loss_per_element = false,
                                      .scale = 1.0 / kCount,
                                      .count = kCount,
                                      .input = a.data(),
                                      .target = b.data(),
                                      .loss = loss.data()});
  launch(test::cpu(), ElementwiseLossGrad{.op = op,
                                          .dtype = dtype_of<T>,
                                          .loss_per_element = false,
                                          .of_target = false,
                                          .accumulate = Accumulate::yes,
                                          .scale = 1.0 / kCount,
                                          .count = kCount,
                                          .input = a.data(),
                                          .target = b.data(),
                                          .grad = loss.data(),
                                          .result = grad.data()});
  return bytes_of(grad);
}

template <class T>
Bytes layer_norm() {
  constexpr std::int64_t kRows = 3001;
  constexpr std::int64_t kSize = 130;
  const auto in = values<T>(kRows * kSize, 23);
  auto out = values<T>(kRows * kSize, 24);
  std::vector<T> affine(2 * kSize);
  std::vector<NormStatistics> statistics(kRows);
  launch(test::cpu(),
         LayerNorm{dtype_of<T>, kRows, kSize, 1e-5, in.data(), in.data(), nullptr, statistics.data(), out.data()});
  launch(test::cpu(), LayerNormGrad{.dtype = dtype_of<T>,
                                    .rows = kRows,
                                    .size = kSize,
                                    .grad = in.data(),
                                    .in = in.data(),
                                    .weight = in.data(),
                                    .statistics = statistics.data(),
                                    .in_grad = out.data(),
                                    .accumulate_in = Accumulate::yes,
                                    .weight_grad = affine.data(),
                                    .bias_grad = affine.data() + kSize});
  out.insert(out.end(), affine.begin(), affine.end());
  return bytes_of(out);
}

template <class T>
Bytes batch_norm(std::int64_t outer, std::int64_t channels, std::int64_t inner) {
  const auto in = values<T>(outer * channels * inner, 25);
  const auto grad = values<T>(outer * channels * inner, 27);
  auto out = values<T>(outer * channels * inner, 26);
  const auto count = static_cast<std::size_t>(channels);
  std::vector<T> rest(4 * count);
  std::vector<NormStatistics> statistics(count);
  launch(test::cpu(), BatchNorm{.dtype = dtype_of<T>,
                                .training = true,
                                .outer = outer,
                                .channels = channels,
                                .inner = inner,
                                .eps = 1e-5,
                                .momentum = {0.1},
                                .in = in.data(),
                                .weight = in.data(),
                                .bias = nullptr,
                                .running_mean = rest.data(),
                                .running_var = rest.data() + count,
                                .statistics = statistics.data(),
                                .out = out.data()});
  launch(test::cpu(), BatchNormGrad{.dtype = dtype_of<T>,
                                    .training = true,
                                    .outer = outer,
                                    .channels = channels,
                                    .inner = inner,
                                    .grad = grad.data(),
                                    .in = in.data(),
                                    .weight = in.data(),
                                    .statistics = statistics.data(),
                                    .in_grad = out.data(),
                                    .accumulate_in = Accumulate::yes,
                                    .weight_grad = rest.data() + 2 * count,
                                    .bias_grad = rest.data() + 3 * count});
  out.insert(out.end(), rest.begin(), rest.end());
  return bytes_of(out);
}

template <class T>
Bytes random_fill(Distribution distribution) {
  std::vector<T> out(50'001);
  const StepState state{.random_offset = 3};
  launch(test::cpu(), RandomFill{.distribution = distribution,
                                 .dtype = dtype_of<T>,
                                 .out = out.data(),
                                 .count = 50'001,
                                 .low = 0,
                                 .high = 100,
                                 .seed = 1,
                                 .offset = 2,
                                 .state = &state});
  return bytes_of(out);
}

template <class T>
Bytes dropout() {
  const auto in = values<T>(50'001, 15);
  std::vector<T> out(in.size());
  std::vector<std::uint8_t> mask(in.size());
  const StepState state;
  launch(test::cpu(), Dropout{.dtype = dtype_of<T>,
                              .count = 50'001,
                              .p = 0.4,
                              .in = in.data(),
                              .out = out.data(),
                              .mask = mask.data(),
                              .seed = 1,
                              .offset = 2,
                              .state = &state});
  launch(test::cpu(), DropoutGrad{.dtype = dtype_of<T>,
                                  .accumulate = Accumulate::yes,
                                  .count = 50'001,
                                  .p = 0.4,
                                  .grad = in.data(),
                                  .mask = mask.data(),
                                  .in_grad = out.data()});
  return bytes_of(out);
}

template <class T>
Bytes optimizers() {
  constexpr std::int64_t kCount = 150'001;
  auto param = values<T>(kCount, 16);
  auto grad = values<T>(kCount, 17);
  std::vector<T> buffer(param.size()), m(param.size()), v(param.size());
  std::vector<T> largest(param.size()), square(param.size()), mean(param.size()), sum(param.size());
  double total = 0;
  const StepState state{.learning_rate = 0.1, .step = 1, .momentum = 0.9, .weight_decay = 0.1};
  launch(test::cpu(), SquaredNorm{.dtype = dtype_of<T>, .count = kCount, .values = grad.data(), .total = &total});
  launch(test::cpu(), PowerNorm{.dtype = dtype_of<T>,
                                .accumulate = Accumulate::yes,
                                .count = kCount,
                                .values = grad.data(),
                                .total = &total,
                                .power = 3});
  launch(test::cpu(),
         ClipByNorm{.dtype = dtype_of<T>, .count = kCount, .values = grad.data(), .norm = &total, .max_norm = 1});
  launch(test::cpu(), ClipByValue{.dtype = dtype_of<T>, .count = kCount, .values = grad.data(), .limit = 1e-3});
  launch(test::cpu(), Sgd{dtype_of<T>, kCount, param.data(), grad.data(), buffer.data(), &state, 0, true});
  launch(test::cpu(), Adam{dtype_of<T>, kCount, param.data(), grad.data(), m.data(), v.data(), &state, 0.999, 1e-8,
                           false, largest.data()});
  launch(test::cpu(), RmsProp{dtype_of<T>, kCount, param.data(), grad.data(), square.data(), mean.data(), buffer.data(),
                              &state, 0.9, 1e-3});
  launch(test::cpu(), Adagrad{dtype_of<T>, kCount, param.data(), grad.data(), sum.data(), &state, 0.1, 1e-10, true});
  launch(test::cpu(), MovingAverage{dtype_of<T>, kCount, mean.data(), param.data(), 0.9});
  Bytes all = bytes_of(param);
  const Bytes averages = bytes_of(mean);
  all.insert(all.end(), averages.begin(), averages.end());
  return all;
}

Bytes copy(Accumulate accumulate) {
  auto in = values<double>(300 * 401, 18);
  auto out = values<float>(300 * 401, 19);
  launch(test::cpu(), Copy{.in_dtype = DType::f64,
                           .out_dtype = DType::f32,
                           .accumulate = accumulate,
                           .loop = test::loop_of({300, 401}),
                           .out = {out.data(), {401, 1}},
                           .in = {in.data(), {1, 300}}});
  return bytes_of(out);
}

Bytes index_select() {
  const auto in = values<float>(500 * 100, 20);
  std::vector<std::int64_t> index(20'000);
  for (std::size_t i = 0; i < index.size(); ++i)
    index[i] = static_cast<std::int64_t>(i * 7 % 500);
  std::vector<float> out(index.size() * 100);
  launch(test::cpu(), IndexSelect{out.data(), in.data(), index.data(), 1, 500, 20'000, 400});
  return bytes_of(out);
}

struct Case {
  std::string name;
  std::function<Bytes()> run;
};

template <class T>
void add_cases(std::vector<Case>& cases, const std::string& type) {
  const auto add = [&](const std::string& name, std::function<Bytes()> run) {
    cases.push_back({name + "_" + type, std::move(run)});
  };
  const Shape cube{30, 41, 100};
  add("add_dense", [] { return pointwise<T>(PointwiseOp::add, Accumulate::no, {200'003}, {1}); });
  add("mul_strided", [cube] { return pointwise<T>(PointwiseOp::mul, Accumulate::yes, cube, {1, 30, 1230}); });
  add("exp_broadcast", [cube] { return pointwise<T>(PointwiseOp::exp, Accumulate::no, cube, {100, 0, 1}); });
  add("sum_all", [] { return reduce<T>(ReduceOp::sum, {}, {}, {400'001}, {1}); });
  add("sum_all_strided", [] { return reduce<T>(ReduceOp::sum, {}, {}, {600, 501}, {1, 600}); });
  add("sum_rows", [] { return reduce<T>(ReduceOp::sum, {500}, {601}, {601}, {1}); });
  add("sum_columns", [] { return reduce<T>(ReduceOp::sum, {1501}, {1}, {400}, {1501}); });
  add("sum_middle", [] { return reduce<T>(ReduceOp::sum, {30, 100}, {4100, 1}, {41}, {100}); });
  add("max_rows", [] { return reduce<T>(ReduceOp::max, {500}, {601}, {601}, {1}); });
  add("min_columns", [] { return reduce<T>(ReduceOp::min, {601}, {1}, {500}, {601}); });
  add("matmul_square", [] { return matmul<T>(200, 180, 190, false); });
  add("matmul_tall_transposed", [] { return matmul<T>(1000, 30, 70, true); });
  add("matmul_wide", [] { return matmul<T>(9, 2000, 90, false); });
  add("cumsum", [] {
    const auto in = values<T>(500'000, 1);
    std::vector<T> out(in.size());
    launch(test::cpu(),
           CumSum{.dtype = dtype_of<T>, .outer = 500, .size = 10, .inner = 100, .in = in.data(), .out = out.data()});
    return bytes_of(out);
  });
  add("softmax", [] { return softmax<T>(false); });
  add("log_softmax", [] { return softmax<T>(true); });
  add("layer_norm", layer_norm<T>);
  add("batch_norm_columns", [] { return batch_norm<T>(4001, 70, 1); });
  add("batch_norm_rows", [] { return batch_norm<T>(30, 3, 3001); });
  add("batch_norm_short_rows", [] { return batch_norm<T>(900, 130, 3); });
  add("cross_entropy", [] { return cross_entropy<T>(0); });
  add("cross_entropy_smoothed", [] { return cross_entropy<T>(0.1); });
  add("nll_loss", nll_loss<T>);
  add("squared_error", [] { return elementwise_loss<T>(LossOp::squared); });
  add("binary_loss", [] { return elementwise_loss<T>(LossOp::binary_logits); });
  add("uniform", [] { return random_fill<T>(Distribution::uniform); });
  add("normal", [] { return random_fill<T>(Distribution::normal); });
  add("dropout", dropout<T>);
  add("optimizers", optimizers<T>);
}

std::vector<Case> all_cases() {
  std::vector<Case> cases{{"copy", [] { return copy(Accumulate::no); }},
                          {"copy_add", [] { return copy(Accumulate::yes); }},
                          {"index_select", index_select},
                          {"randint", [] { return random_fill<std::int64_t>(Distribution::integer); }}};
  add_cases<float>(cases, "f32");
  add_cases<double>(cases, "f64");
  return cases;
}

class Kernel : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(All, Kernel, ::testing::ValuesIn(all_cases()),
                         [](const auto& param) { return param.param.name; });

TEST_P(Kernel, GivesTheSameBitsForAnyNumberOfThreads) {
  Bytes one;
  {
    const test::ThreadCount threads(1);
    one = GetParam().run();
  }
  for (const int count : {2, 3, 5}) {
    const test::ThreadCount threads(count);
    for (int round = 0; round < 2; ++round) {
      ASSERT_TRUE(GetParam().run() == one) << count << " threads";
    }
  }
}

}  // namespace
}  // namespace tandem::kernels
