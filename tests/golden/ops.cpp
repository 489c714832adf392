#include "ops.h"

#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <stdexcept>

#include <fmt/format.h>

#include <tandem/autograd/ops.h>
#include <tandem/autograd/spatial.h>
#include <tandem/nn/batch_norm.h>

namespace tandem::golden {

namespace {

using nlohmann::json;
using Tensors = std::vector<Tensor>;
using Op = std::function<Tensor(const json& attrs, const Tensors& x)>;

Reduction to_reduction(const std::string& name) {
  static const std::map<std::string, Reduction> reductions{
      {"none", Reduction::none}, {"mean", Reduction::mean}, {"sum", Reduction::sum}};
  return reductions.at(name);
}

// Whole numbers become integer scalars, because the dtype of a result depends on the kind.
Scalar to_scalar(const json& number) {
  return number.is_number_integer() ? Scalar(number.get<std::int64_t>()) : Scalar(number.get<double>());
}

// An op on two tensors, or on one tensor and a number on either side.
template <class F>
Op arithmetic(F f) {
  return [f](const json& attrs, const Tensors& x) -> Tensor {
    if (x.size() == 2) {
      return f(x[0], x[1]);
    }
    const Scalar scalar = to_scalar(attrs.at("scalar"));
    return attrs.at("side") == "right" ? f(x[0], scalar) : f(scalar, x[0]);
  };
}

Op plain(Tensor (Tensor::*method)() const) {
  return [method](const json&, const Tensors& x) { return (x[0].*method)(); };
}

template <class F>
Op of_two(F f) {
  return [f](const json&, const Tensors& x) { return f(x.at(0), x.at(1)); };
}

// In-place ops change a copy.
Op in_place(Tensor& (Tensor::*method)()) {
  return [method](const json&, const Tensors& x) { return (x[0].clone().*method)(); };
}
Op in_place(Tensor& (Tensor::*method)(const Tensor&)) {
  return [method](const json&, const Tensors& x) { return (x[0].clone().*method)(x.at(1)); };
}
Op in_place(Tensor& (Tensor::*method)(Scalar), const char* attribute) {
  return [=](const json& attrs, const Tensors& x) { return (x[0].clone().*method)(to_scalar(attrs.at(attribute))); };
}

Op along_dim(Tensor (Tensor::*method)(int) const) {
  return [method](const json& attrs, const Tensors& x) { return (x[0].*method)(attrs.at("dim")); };
}

Op over_dims(Tensor (Tensor::*over_all)() const, Tensor (Tensor::*over)(const Shape&, bool) const) {
  return [=](const json& attrs, const Tensors& x) {
    const json& dims = attrs.at("dims");
    return dims.is_null() ? (x[0].*over_all)() : (x[0].*over)(to_shape(dims), attrs.at("keepdim"));
  };
}

Op extreme(Tensor (Tensor::*over_all)() const, Tensor (Tensor::*over)(int, bool) const) {
  return [=](const json& attrs, const Tensors& x) {
    const json& dim = attrs.at("dim");
    return dim.is_null() ? (x[0].*over_all)() : (x[0].*over)(dim, attrs.at("keepdim"));
  };
}

Op over_dims(Tensor (Tensor::*over)(const Shape&, bool) const) {
  return [=](const json& attrs, const Tensors& x) {
    const json& dims = attrs.at("dims");
    return (x[0].*over)(dims.is_null() ? Shape{} : to_shape(dims), attrs.at("keepdim"));
  };
}

Op position(Tensor (Tensor::*of)(std::optional<std::int64_t>, bool) const) {
  return [=](const json& attrs, const Tensors& x) {
    const json& dim = attrs.at("dim");
    return (x[0].*of)(dim.is_null() ? std::nullopt : std::optional<std::int64_t>(dim), attrs.at("keepdim"));
  };
}

Op shaped(Tensor (Tensor::*method)(const Shape&) const, const char* attribute) {
  return [=](const json& attrs, const Tensors& x) { return (x[0].*method)(to_shape(attrs.at(attribute))); };
}

Op linear_of(Tensor (*function)(const Tensor&, const Tensor&, const Tensor&)) {
  return
      [function](const json&, const Tensors& x) { return function(x.at(0), x.at(1), x.size() > 2 ? x[2] : Tensor()); };
}

Op loss(Tensor (*function)(const Tensor&, const Tensor&, Reduction)) {
  return [function](const json& attrs, const Tensors& x) {
    return function(x.at(0), x.at(1), to_reduction(attrs.at("reduction")));
  };
}

// The optional third input of the losses over classes.
Tensor weight_of(const Tensors& x) { return x.size() > 2 ? x[2] : Tensor(); }

Tensor cross_entropy_of(const json& attrs, const Tensors& x) {
  return cross_entropy(x.at(0), x.at(1),
                       {.weight = weight_of(x),
                        .ignore_index = attrs.value("ignore_index", -100),
                        .reduction = to_reduction(attrs.at("reduction")),
                        .label_smoothing = attrs.value("label_smoothing", 0.0)});
}

Tensor nll_loss_of(const json& attrs, const Tensors& x) {
  return nll_loss(x.at(0), x.at(1),
                  {.weight = weight_of(x),
                   .ignore_index = attrs.value("ignore_index", -100),
                   .reduction = to_reduction(attrs.at("reduction"))});
}

// The attribute lists the weights that follow input and target.
Tensor named_weight(const json& attrs, const Tensors& x, const std::string& name) {
  const json& names = attrs.at("weights");
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) {
      return x.at(2 + i);
    }
  }
  return {};
}

Tensor binary_cross_entropy_of(const json& attrs, const Tensors& x) {
  return binary_cross_entropy(
      x.at(0), x.at(1), {.weight = named_weight(attrs, x, "weight"), .reduction = to_reduction(attrs.at("reduction"))});
}

Tensor binary_cross_entropy_with_logits_of(const json& attrs, const Tensors& x) {
  return binary_cross_entropy_with_logits(x.at(0), x.at(1),
                                          {.weight = named_weight(attrs, x, "weight"),
                                           .reduction = to_reduction(attrs.at("reduction")),
                                           .pos_weight = named_weight(attrs, x, "pos_weight")});
}

Op joining(Tensor (*function)(const std::vector<Tensor>&, int)) {
  return [function](const json& attrs, const Tensors& x) { return function(x, attrs.at("dim")); };
}

Op deviation(Tensor (Tensor::*method)(const Shape&, std::int64_t, bool) const) {
  return [method](const json& attrs, const Tensors& x) {
    return (x[0].*method)(to_shape(attrs.at("dims")), attrs.at("correction"), attrs.at("keepdim"));
  };
}

Tensor optional_input(const Tensors& x, std::size_t i) { return i < x.size() ? x[i] : Tensor(); }

Size2d size_of(const json& numbers) { return {numbers.at(0), numbers.at(1)}; }

ConvPadding padding_of(const json& given) {
  return given.is_string()  ? ConvPadding(given.get<std::string>())
         : given.is_array() ? ConvPadding(size_of(given))
                            : ConvPadding(given.get<std::int64_t>());
}

Tensor running_statistics(const json& attrs, const Tensors& batches) {
  nn::BatchNormOptions options{.dtype = batches.at(0).dtype()};
  options.momentum = attrs.at("momentum").is_null() ? std::nullopt : std::optional<double>(attrs.at("momentum"));
  const nn::BatchNorm1d layer(batches[0].size(1), options);
  for (const Tensor& batch : batches) {
    layer(batch);
  }
  return cat({layer.running_mean, layer.running_var});
}

Tensor slice(const json& attrs, const Tensors& x) {
  return x[0].slice(attrs.at("dim"), attrs.at("start"), attrs.at("end"), attrs.at("step"));
}

const std::map<std::string, Op>& ops() {
  static const std::map<std::string, Op> table{
      {"add", arithmetic([](const auto& a, const auto& b) { return a + b; })},
      {"sub", arithmetic([](const auto& a, const auto& b) { return a - b; })},
      {"mul", arithmetic([](const auto& a, const auto& b) { return a * b; })},
      {"div", arithmetic([](const auto& a, const auto& b) { return a / b; })},
      {"neg", plain(&Tensor::neg)},
      {"exp", plain(&Tensor::exp)},
      {"log", plain(&Tensor::log)},
      {"sqrt", plain(&Tensor::sqrt)},
      {"abs", plain(&Tensor::abs)},
      {"relu", plain(&Tensor::relu)},
      {"pow", [](const json& attrs, const Tensors& x) { return x[0].pow(to_scalar(attrs.at("exponent"))); }},
      {"matmul", [](const json&, const Tensors& x) { return x.at(0).matmul(x.at(1)); }},
      {"softmax", along_dim(&Tensor::softmax)},
      {"log_softmax", along_dim(&Tensor::log_softmax)},
      {"sum", over_dims(&Tensor::sum, &Tensor::sum)},
      {"cumsum", [](const json& attrs, const Tensors& x) { return x[0].cumsum(attrs.at("dim")); }},
      {"mean", over_dims(&Tensor::mean, &Tensor::mean)},
      {"max", extreme(&Tensor::max, &Tensor::max<int>)},
      {"min", extreme(&Tensor::min, &Tensor::min<int>)},
      {"amax", over_dims(&Tensor::amax)},
      {"amin", over_dims(&Tensor::amin)},
      {"argmax", position(&Tensor::argmax)},
      {"argmin", position(&Tensor::argmin)},
      {"reshape", shaped(&Tensor::reshape, "shape")},
      {"expand", shaped(&Tensor::expand, "shape")},
      {"permute", shaped(&Tensor::permute, "order")},
      {"flatten",
       [](const json& attrs, const Tensors& x) { return x[0].flatten(attrs.at("start_dim"), attrs.at("end_dim")); }},
      {"transpose",
       [](const json& attrs, const Tensors& x) { return x[0].transpose(attrs.at("dim0"), attrs.at("dim1")); }},
      {"slice", slice},
      {"narrow", [](const json& attrs,
                    const Tensors& x) { return x[0].narrow(attrs.at("dim"), attrs.at("start"), attrs.at("length")); }},
      {"select", [](const json& attrs, const Tensors& x) { return x[0].select(attrs.at("dim"), attrs.at("index")); }},
      {"squeeze",
       [](const json& attrs, const Tensors& x) {
         return attrs.at("dim").is_null() ? x[0].squeeze() : x[0].squeeze(attrs.at("dim"));
       }},
      {"unsqueeze", along_dim(&Tensor::unsqueeze)},
      {"index_select",
       [](const json& attrs, const Tensors& x) { return x.at(0).index_select(attrs.at("dim"), x.at(1)); }},
      {"gather", [](const json& attrs, const Tensors& x) { return x.at(0).gather(attrs.at("dim"), x.at(1)); }},
      {"scatter_add",
       [](const json& attrs, const Tensors& x) { return x.at(0).scatter_add(attrs.at("dim"), x.at(1), x.at(2)); }},
      {"where", [](const json&, const Tensors& x) { return where(x.at(0) != 0, x.at(1), x.at(2)); }},
      {"masked_select", [](const json&, const Tensors& x) { return x.at(0).masked_select(x.at(1) != 0); }},
      {"masked_fill", [](const json& attrs,
                         const Tensors& x) { return x.at(0).masked_fill(x.at(1) != 0, to_scalar(attrs.at("value"))); }},
      {"maximum", [](const json&, const Tensors& x) { return maximum(x.at(0), x.at(1)); }},
      {"minimum", [](const json&, const Tensors& x) { return minimum(x.at(0), x.at(1)); }},
      {"power", [](const json&, const Tensors& x) { return x.at(0).pow(x.at(1)); }},
      {"expm1", plain(&Tensor::expm1)},
      {"log1p", plain(&Tensor::log1p)},
      {"rsqrt", plain(&Tensor::rsqrt)},
      {"sin", plain(&Tensor::sin)},
      {"cos", plain(&Tensor::cos)},
      {"sign", plain(&Tensor::sign)},
      {"floor", plain(&Tensor::floor)},
      {"ceil", plain(&Tensor::ceil)},
      {"round", plain(&Tensor::round)},
      {"tanh", plain(&Tensor::tanh)},
      {"sigmoid", plain(&Tensor::sigmoid)},
      {"clamp", [](const json& attrs, const Tensors& x) { return x[0].clamp(attrs.at("min"), attrs.at("max")); }},
      {"silu", [](const json&, const Tensors& x) { return silu(x[0]); }},
      {"gelu",
       [](const json& attrs, const Tensors& x) {
         return gelu(x[0], attrs.at("approximate") == "tanh" ? GELUApproximation::tanh : GELUApproximation::none);
       }},
      {"leaky_relu", [](const json& attrs, const Tensors& x) { return leaky_relu(x[0], attrs.at("negative_slope")); }},
      {"elu", [](const json& attrs, const Tensors& x) { return elu(x[0], attrs.at("alpha")); }},
      {"softplus",
       [](const json& attrs, const Tensors& x) { return softplus(x[0], attrs.at("beta"), attrs.at("threshold")); }},
      {"var", deviation(&Tensor::var)},
      {"std", deviation(&Tensor::std)},
      {"norm",
       [](const json& attrs, const Tensors& x) {
         return x[0].norm(attrs.at("p"), to_shape(attrs.at("dims")), attrs.at("keepdim"));
       }},
      {"logsumexp", [](const json& attrs,
                       const Tensors& x) { return x[0].logsumexp(to_shape(attrs.at("dims")), attrs.at("keepdim")); }},
      {"cat", joining(&cat)},
      {"stack", joining(&stack)},
      {"eq", of_two([](const Tensor& a, const Tensor& b) { return a == b; })},
      {"ne", of_two([](const Tensor& a, const Tensor& b) { return a != b; })},
      {"lt", of_two([](const Tensor& a, const Tensor& b) { return a < b; })},
      {"le", of_two([](const Tensor& a, const Tensor& b) { return a <= b; })},
      {"gt", of_two([](const Tensor& a, const Tensor& b) { return a > b; })},
      {"ge", of_two([](const Tensor& a, const Tensor& b) { return a >= b; })},
      {"logical_and", of_two(&logical_and)},
      {"logical_or", of_two(&logical_or)},
      {"logical_xor", of_two(&logical_xor)},
      {"logical_not", [](const json&, const Tensors& x) { return logical_not(x[0]); }},
      {"isnan", [](const json&, const Tensors& x) { return isnan(x[0]); }},
      {"any", [](const json&, const Tensors& x) { return x[0].any(); }},
      {"all", [](const json&, const Tensors& x) { return x[0].all(); }},
      {"nonzero", plain(&Tensor::nonzero)},
      {"clone", plain(&Tensor::clone)},
      {"to", [](const json& attrs, const Tensors& x) { return x[0].to(dtype_named(attrs.at("dtype"))); }},
      {"split",
       [](const json& attrs, const Tensors& x) {
         return x[0].split(attrs.at("length").get<std::int64_t>(), attrs.at("dim")).back();
       }},
      {"masked_fill_",
       [](const json& attrs, const Tensors& x) {
         return x.at(0).clone().masked_fill_(x.at(1) != 0, to_scalar(attrs.at("value")));
       }},
      {"scatter_add_",
       [](const json& attrs, const Tensors& x) {
         return x.at(0).clone().scatter_add_(attrs.at("dim"), x.at(1), x.at(2));
       }},
      {"clamp_",
       [](const json& attrs, const Tensors& x) { return x[0].clone().clamp_(attrs.at("min"), attrs.at("max")); }},
      {"fill_", in_place(&Tensor::fill_, "value")},
      {"pow_", in_place(&Tensor::pow_, "exponent")},
      {"neg_", in_place(&Tensor::neg_)},
      {"exp_", in_place(&Tensor::exp_)},
      {"expm1_", in_place(&Tensor::expm1_)},
      {"log_", in_place(&Tensor::log_)},
      {"log1p_", in_place(&Tensor::log1p_)},
      {"sqrt_", in_place(&Tensor::sqrt_)},
      {"rsqrt_", in_place(&Tensor::rsqrt_)},
      {"sin_", in_place(&Tensor::sin_)},
      {"cos_", in_place(&Tensor::cos_)},
      {"abs_", in_place(&Tensor::abs_)},
      {"sign_", in_place(&Tensor::sign_)},
      {"floor_", in_place(&Tensor::floor_)},
      {"ceil_", in_place(&Tensor::ceil_)},
      {"round_", in_place(&Tensor::round_)},
      {"relu_", in_place(&Tensor::relu_)},
      {"tanh_", in_place(&Tensor::tanh_)},
      {"sigmoid_", in_place(&Tensor::sigmoid_)},
      {"add_", in_place(&Tensor::add_)},
      {"sub_", in_place(&Tensor::sub_)},
      {"mul_", in_place(&Tensor::mul_)},
      {"div_", in_place(&Tensor::div_)},
      {"copy_", in_place(&Tensor::copy_)},
      {"linear", linear_of(&linear)},
      {"linear_relu", linear_of(&linear_relu)},
      {"layer_norm",
       [](const json& attrs, const Tensors& x) {
         return layer_norm(x.at(0), to_shape(attrs.at("normalized_shape")), optional_input(x, 1), optional_input(x, 2),
                           attrs.at("eps"));
       }},
      {"batch_norm",
       [](const json& attrs, const Tensors& x) {
         return batch_norm(x.at(0), x.at(1), x.at(2), optional_input(x, 3), optional_input(x, 4), attrs.at("training"),
                           0.1, attrs.at("eps"));
       }},
      {"running_statistics", running_statistics},
      {"conv1d",
       [](const json& a, const Tensors& x) {
         return conv1d(x.at(0), x.at(1), optional_input(x, 2), a.at("stride"), padding_of(a.at("padding")),
                       a.at("dilation"), a.at("groups"));
       }},
      {"conv2d",
       [](const json& a, const Tensors& x) {
         return conv2d(x.at(0), x.at(1), optional_input(x, 2), size_of(a.at("stride")), padding_of(a.at("padding")),
                       size_of(a.at("dilation")), a.at("groups"));
       }},
      {"conv_transpose1d",
       [](const json& a, const Tensors& x) {
         return conv_transpose1d(x.at(0), x.at(1), optional_input(x, 2), a.at("stride"), a.at("padding"),
                                 a.at("output_padding"), a.at("groups"), a.at("dilation"));
       }},
      {"conv_transpose2d",
       [](const json& a, const Tensors& x) {
         return conv_transpose2d(x.at(0), x.at(1), optional_input(x, 2), size_of(a.at("stride")),
                                 size_of(a.at("padding")), size_of(a.at("output_padding")), a.at("groups"),
                                 size_of(a.at("dilation")));
       }},
      {"max_pool1d",
       [](const json& a, const Tensors& x) {
         return max_pool1d(x.at(0), a.at("kernel_size"), a.at("stride").get<std::int64_t>(), a.at("padding"),
                           a.at("dilation"), a.at("ceil_mode"));
       }},
      {"max_pool2d",
       [](const json& a, const Tensors& x) {
         return max_pool2d(x.at(0), size_of(a.at("kernel_size")), size_of(a.at("stride")), size_of(a.at("padding")),
                           size_of(a.at("dilation")), a.at("ceil_mode"));
       }},
      {"avg_pool1d",
       [](const json& a, const Tensors& x) {
         return avg_pool1d(x.at(0), a.at("kernel_size"), a.at("stride").get<std::int64_t>(), a.at("padding"),
                           a.at("ceil_mode"), a.at("count_include_pad"));
       }},
      {"avg_pool2d",
       [](const json& a, const Tensors& x) {
         const json& divisor = a.at("divisor_override");
         return avg_pool2d(x.at(0), size_of(a.at("kernel_size")), size_of(a.at("stride")), size_of(a.at("padding")),
                           a.at("ceil_mode"), a.at("count_include_pad"),
                           divisor.is_null() ? std::nullopt : std::optional<std::int64_t>(divisor));
       }},
      {"pad",
       [](const json& a, const Tensors& x) {
         static const std::map<std::string, PadMode> kModes{{"constant", PadMode::constant},
                                                            {"reflect", PadMode::reflect},
                                                            {"replicate", PadMode::replicate},
                                                            {"circular", PadMode::circular}};
         return pad(x.at(0), a.at("pad"), kModes.at(a.at("mode")));
       }},
      {"unfold",
       [](const json& a, const Tensors& x) {
         return unfold(x.at(0), size_of(a.at("kernel_size")), size_of(a.at("dilation")), size_of(a.at("padding")),
                       size_of(a.at("stride")));
       }},
      {"interpolate",
       [](const json& a, const Tensors& x) {
         const bool nearest = a.at("mode") == "nearest";
         return interpolate(x.at(0), size_of(a.at("size")),
                            nearest ? InterpolateMode::nearest : InterpolateMode::bilinear,
                            !nearest && a.at("align_corners").get<bool>());
       }},
      {"group_norm",
       [](const json& a, const Tensors& x) {
         return group_norm(x.at(0), a.at("num_groups"), x.at(1), x.at(2), a.at("eps"));
       }},
      {"instance_norm",
       [](const json& a, const Tensors& x) { return instance_norm(x.at(0), x.at(1), x.at(2), a.at("eps")); }},
      {"adaptive_avg_pool2d",
       [](const json& a, const Tensors& x) { return adaptive_avg_pool2d(x.at(0), size_of(a.at("output_size"))); }},
      {"adaptive_max_pool2d",
       [](const json& a, const Tensors& x) { return adaptive_max_pool2d(x.at(0), size_of(a.at("output_size"))); }},
      {"embedding",
       [](const json& attrs, const Tensors& x) {
         const json& padding = attrs.at("padding_idx");
         return embedding(x.at(0), x.at(1), padding.is_null() ? std::nullopt : std::optional<std::int64_t>(padding));
       }},
      {"cross_entropy", cross_entropy_of},
      {"nll_loss", nll_loss_of},
      {"mse_loss", loss(&mse_loss)},
      {"l1_loss", loss(&l1_loss)},
      {"smooth_l1_loss",
       [](const json& attrs, const Tensors& x) {
         return smooth_l1_loss(x.at(0), x.at(1), to_reduction(attrs.at("reduction")), attrs.value("beta", 1.0));
       }},
      {"huber_loss",
       [](const json& attrs, const Tensors& x) {
         return huber_loss(x.at(0), x.at(1), to_reduction(attrs.at("reduction")), attrs.value("delta", 1.0));
       }},
      {"binary_cross_entropy", binary_cross_entropy_of},
      {"binary_cross_entropy_with_logits", binary_cross_entropy_with_logits_of},
  };
  return table;
}

}  // namespace

Tensor run_op(const Case& c, const Tensors& inputs) {
  const auto op = ops().find(c.op);
  if (op == ops().end()) {
    throw std::out_of_range("op '" + c.op + "' is not known to these tests: add it to tests/golden/ops.cpp");
  }
  return op->second(c.attrs, inputs);
}

Tensor run_positions(const Case& c, const Tensor& input) {
  const Tensor x = input.detach();
  return (c.op == "min" ? x.neg() : x).argmax(c.attrs.at("dim"), c.attrs.at("keepdim"));
}

std::vector<std::string> problems_of(const Case& c, DType dtype) {
  std::vector<std::string> problems;
  const auto note = [&](const std::string& tensor, const ::testing::AssertionResult& result) {
    if (!result) {
      problems.push_back(fmt::format("'{}', {}: {}", c.name, tensor, result.message()));
    }
  };
  const Result& expected = c.result(dtype);
  Tensors leaves;
  Tensors inputs;
  for (const Input& input : c.inputs) {
    Tensor leaf = input.values.to_tensor(dtype);
    if (input.requires_grad) {
      leaf.requires_grad_();
    }
    leaves.push_back(leaf);
    inputs.push_back(input.permute ? leaf.permute(*input.permute) : leaf);
  }
  try {
    const Tensor output = run_op(c, inputs);
    note("output", is_close(output, expected.output, tolerance(dtype)));
    if (output.dtype() != dtype && !expected.output.integer) {
      problems.push_back(fmt::format("'{}', output: dtype {}", c.name, name(output.dtype())));
    }
    if (c.indices) {
      note("positions", is_close(run_positions(c, inputs[0]), *c.indices, 0));
    }
    if (output.requires_grad() != c.grad_output.has_value()) {
      problems.push_back(fmt::format("'{}', output: requires_grad is {}", c.name, output.requires_grad()));
    } else if (c.grad_output) {
      output.backward(c.grad_output->to_tensor(dtype));
    }
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      const std::string name = fmt::format("gradient of input {}", i);
      if (expected.grads.at(i)) {
        note(name, is_close(leaves[i].grad(), *expected.grads[i], tolerance(dtype)));
      } else if (leaves[i].grad().defined()) {
        problems.push_back(fmt::format("'{}', {}: there should be none", c.name, name));
      }
    }
  } catch (const std::exception& e) {
    problems.push_back(fmt::format("'{}': threw: {}", c.name, e.what()));
  }
  return problems;
}

}  // namespace tandem::golden
