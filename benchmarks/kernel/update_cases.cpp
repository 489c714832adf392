#include <tandem/kernels/clip.h>
#include <tandem/kernels/combine.h>
#include <tandem/kernels/dropout.h>
#include <tandem/kernels/grad_scale.h>
#include <tandem/kernels/optimizer.h>

#include "kernel/case.h"

// Optimisers, norms and limits of gradients, gradient scaling, dropout, and arrays of several ranks combined.

namespace bench::kernel {

namespace {

using namespace tandem::kernels;

StepState* step_state(Data& data) {
  return data.keep(StepState{.learning_rate = 1e-4, .step = 100, .momentum = 0.9, .weight_decay = 0});
}

// A step of one parameter; make(param, grad, kept, state) is the kernel, with `kept` arrays per parameter, of which the
// first `signless` are not negative.
template <class Make>
Case optimizer_case(DType dtype, Size size, const char* name, int kept, Make&& make) {
  const std::int64_t count = count_of(size);
  Case made;
  Data& data = made.data;
  void* param = data.random(dtype, count);
  const void* grad = data.random(dtype, count, 1e-2);
  made.operation = {.name = name, .dtype = "", .sizes = {count}, .in = {grad}, .out = {param}};
  made.passes = {{updates(param, dtype, count), reads(grad, dtype, count)}};
  std::array<void*, 3> arrays{};
  for (int i = 0; i < kept; ++i) {
    arrays[static_cast<std::size_t>(i)] = data.random(dtype, count, 1e-4, 1e-3);
    made.operation.out.push_back(arrays[static_cast<std::size_t>(i)]);
    made.passes[0].push_back(updates(arrays[static_cast<std::size_t>(i)], dtype, count));
  }
  made.run = launches(make(dtype, count, param, grad, arrays, step_state(data)));
  return made;
}

using Kept = std::array<void*, 3>;

Sgd sgd_of(DType dtype, std::int64_t count, void* param, const void* grad, const Kept& kept, StepState* state) {
  return {.dtype = dtype,
          .count = count,
          .param = param,
          .grad = grad,
          .momentum_buffer = kept[0],
          .state = state,
          .dampening = 0,
          .nesterov = false};
}
Adam adam_of(DType dtype, std::int64_t count, void* param, const void* grad, const Kept& kept, StepState* state) {
  return {.dtype = dtype,
          .count = count,
          .param = param,
          .grad = grad,
          .exp_avg = kept[0],
          .exp_avg_sq = kept[1],
          .state = state,
          .beta2 = 0.999,
          .eps = 1e-8,
          .decoupled = false,
          .max_exp_avg_sq = kept[2]};
}
RmsProp rmsprop_of(DType dtype, std::int64_t count, void* param, const void* grad, const Kept& kept, StepState* state) {
  return {.dtype = dtype,
          .count = count,
          .param = param,
          .grad = grad,
          .square_avg = kept[0],
          .grad_avg = nullptr,
          .momentum_buffer = nullptr,
          .state = state,
          .alpha = 0.99,
          .eps = 1e-8};
}
Adagrad adagrad_of(DType dtype, std::int64_t count, void* param, const void* grad, const Kept& kept, StepState* state) {
  return {.dtype = dtype,
          .count = count,
          .param = param,
          .grad = grad,
          .sum = kept[0],
          .state = state,
          .lr_decay = 0,
          .eps = 1e-10};
}

Case moving_average_case(DType dtype, Size size) {
  const std::int64_t count = count_of(size);
  Case made;
  void* average = made.data.random(dtype, count);
  const void* values = made.data.random(dtype, count);
  made.run =
      launches(MovingAverage{.dtype = dtype, .count = count, .average = average, .values = values, .decay = 0.999});
  made.passes = {{updates(average, dtype, count), reads(values, dtype, count)}};
  made.operation = {.name = "moving_average", .dtype = "", .sizes = {count}, .in = {values}, .out = {average}};
  return made;
}

// A 16-bit parameter with its f32 master.
Case master_case(DType dtype, Size size) {
  const std::int64_t count = count_of(size);
  Case made;
  Data& data = made.data;
  void* param = data.random(dtype, count);
  void* master = data.random(kF32, count);
  const void* grad = data.random(dtype, count, 1e-2);
  void* m = data.random(kF32, count, 1e-4, 1e-3);
  void* v = data.random(kF32, count, 1e-4, 1e-3);
  Adam kernel = adam_of(dtype, count, param, grad, {m, v, nullptr}, step_state(data));
  kernel.master = master;
  made.run = launches(kernel);
  made.passes = {{updates(param, dtype, count), reads(grad, dtype, count), updates(master, kF32, count),
                  updates(m, kF32, count), updates(v, kF32, count)}};
  return made;
}

Case norm_case(DType dtype, Size size, double power) {
  const std::int64_t count = count_of(size);
  Case made;
  const void* values = made.data.random(dtype, count);
  double* total = made.data.keep(0.0);
  if (power == 2) {
    made.run = launches(SquaredNorm{.dtype = dtype, .count = count, .values = values, .total = total});
    made.operation = {.name = "norm", .dtype = "", .sizes = {count}, .in = {values}, .out = {}};
  } else {
    made.run = launches(PowerNorm{.dtype = dtype, .count = count, .values = values, .total = total, .power = power});
  }
  made.passes = {{reads(values, dtype, count)}};
  return made;
}

// The norm is just above the limit, so that values hardly shrink from call to call.
Case clip_case(DType dtype, Size size, bool by_norm) {
  const std::int64_t count = count_of(size);
  Case made;
  void* values = made.data.random(dtype, count);
  if (by_norm) {
    made.run = launches(
        ClipByNorm{.dtype = dtype, .count = count, .values = values, .norm = made.data.keep(1.000001), .max_norm = 1});
  } else {
    made.run = launches(ClipByValue{.dtype = dtype, .count = count, .values = values, .limit = 0.5});
    made.operation = {.name = "clip_by_value", .dtype = "", .sizes = {count}, .in = {}, .out = {values}};
  }
  made.passes = {{updates(values, dtype, count)}};
  return made;
}

Case find_inf_case(DType dtype, Size size, bool unscale) {
  const std::int64_t count = count_of(size);
  Case made;
  void* values = made.data.random(dtype, count);
  made.run = launches(FindInf{.dtype = dtype,
                              .unscale = unscale,
                              .count = count,
                              .gradients = values,
                              .record = made.data.keep(GradScale{.inverse = 1, .found_inf = 0, .skipped = 0}),
                              .found_inf = made.data.keep(0.0F)});
  made.passes = {{unscale ? updates(values, dtype, count) : reads(values, dtype, count)}};
  return made;
}

Case dropout_case(DType dtype, Size size, bool gradient) {
  const std::int64_t count = count_of(size);
  Case made;
  const void* in = made.data.random(dtype, count);
  void* out = made.data.zeros(dtype, count);
  std::uint8_t* mask = made.data.flags(count);
  if (gradient) {
    made.run =
        launches(DropoutGrad{.dtype = dtype, .count = count, .p = 0.3, .grad = in, .mask = mask, .in_grad = out});
    made.passes = {{reads(in, dtype, count), reads(mask, DType::boolean, count), writes(out, dtype, count)}};
  } else {
    made.run = launches(Dropout{.dtype = dtype,
                                .count = count,
                                .p = 0.3,
                                .in = in,
                                .out = out,
                                .mask = mask,
                                .seed = 1,
                                .offset = 0,
                                .state = step_state(made.data)});
    made.passes = {{reads(in, dtype, count), writes(mask, DType::boolean, count), writes(out, dtype, count)}};
    made.operation = {.name = "dropout", .dtype = "", .sizes = {count}, .in = {in}, .out = {out, mask}};
  }
  return made;
}

// `ranks` arrays combined into one, which all of them get.
Case combine_case(DType dtype, Size size, CombineOp op, int ranks) {
  const std::int64_t count = count_of(size) / ranks;
  Case made;
  std::vector<const void*> in;
  std::vector<void*> out;
  made.passes.emplace_back();
  for (int i = 0; i < ranks; ++i) {
    in.push_back(made.data.random(dtype, count));
    out.push_back(made.data.zeros(dtype, count));
    made.passes[0].push_back(reads(in.back(), dtype, count));
    made.passes[0].push_back(writes(out.back(), dtype, count));
  }
  made.run = launches(Combine{.op = op,
                              .dtype = dtype,
                              .in = made.data.keep(in)->data(),
                              .ins = ranks,
                              .out = made.data.keep(out)->data(),
                              .outs = ranks,
                              .count = count,
                              .divisor = ranks});
  return made;
}

}  // namespace

void add_updates(Cases& cases) {
  const auto optimizer = [&](const char* name, int kept, auto make, const std::vector<DType>& dtypes) {
    cases.add("optimizer", name, dtypes,
              [=](DType dtype, Size size) { return optimizer_case(dtype, size, name, kept, make); });
  };
  optimizer("sgd", 0, sgd_of, kFloats);
  optimizer("sgd momentum", 1, sgd_of, kFloats);
  optimizer("adam", 2, adam_of, kFloats);
  optimizer("adam amsgrad", 3, adam_of, {kF32});
  optimizer("rmsprop", 1, rmsprop_of, {kF32});
  optimizer("adagrad", 1, adagrad_of, {kF32});
  cases.add("optimizer", "adam with master", {DType::bf16, DType::f16}, master_case);
  cases.add("optimizer", "moving average", kFloats, moving_average_case);
  cases.add("clip", "squared norm", kFloats, [](DType dtype, Size size) { return norm_case(dtype, size, 2); });
  cases.add("clip", "norm of power 1", {kF32}, [](DType dtype, Size size) { return norm_case(dtype, size, 1); });
  cases.add("clip", "norm of power 3", {kF32}, [](DType dtype, Size size) { return norm_case(dtype, size, 3); });
  cases.add("clip", "largest value", {kF32},
            [](DType dtype, Size size) { return norm_case(dtype, size, std::numeric_limits<double>::infinity()); });
  cases.add("clip", "by norm", kFloats, [](DType dtype, Size size) { return clip_case(dtype, size, true); });
  cases.add("clip", "by value", kFloats, [](DType dtype, Size size) { return clip_case(dtype, size, false); });
  cases.add("grad_scale", "find inf", kFloats,
            [](DType dtype, Size size) { return find_inf_case(dtype, size, false); });
  cases.add("grad_scale", "find inf and unscale", kFloats,
            [](DType dtype, Size size) { return find_inf_case(dtype, size, true); });
  cases.add("dropout", "forward", kFloats, [](DType dtype, Size size) { return dropout_case(dtype, size, false); });
  cases.add("dropout", "gradient", kFloats, [](DType dtype, Size size) { return dropout_case(dtype, size, true); });
  for (const int ranks : {2, 4}) {
    cases.add("combine", "sum of " + std::to_string(ranks), kFloats,
              [=](DType dtype, Size size) { return combine_case(dtype, size, CombineOp::sum, ranks); });
  }
  cases.add("combine", "max of 2", {kF32},
            [](DType dtype, Size size) { return combine_case(dtype, size, CombineOp::max, 2); });
}

}  // namespace bench::kernel
