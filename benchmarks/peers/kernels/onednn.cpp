#include <algorithm>
#include <array>
#include <map>

#include <omp.h>
#include <dnnl.hpp>

#include "peers_of.h"

// oneDNN: primitives made once, on the case's own memory.

namespace bench::kernel {

namespace {

using dnnl::memory;
using Dims = memory::dims;

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

memory::desc described(const Dims& dims, bool transposed = false, memory::data_type type = memory::data_type::f32) {
  Dims strides(dims.size(), 1);
  for (std::size_t i = dims.size() - 1; i > 0; --i) {
    strides[i - 1] = strides[i] * dims[i];
  }
  if (transposed) {
    strides = {1, dims[0]};
  }
  return {dims, type, strides};
}

memory at(const memory::desc& desc, const void* data) { return {desc, engine(), const_cast<void*>(data)}; }

std::function<void()> running(const dnnl::primitive& primitive, const std::unordered_map<int, memory>& arguments) {
  return [primitive, arguments, stream = dnnl::stream(engine())]() mutable {
    primitive.execute(stream, arguments);
    stream.wait();
  };
}

std::function<void()> product(const Operation& of) {
  const std::int64_t batch = of.sizes[0], in = of.sizes[1], out = of.sizes[2];
  memory::desc a, b, c;
  if (of.name == "product") {
    a = described({batch, in});
    b = described({in, out}, true);
    c = described({batch, out});
  } else if (of.name == "product data gradient") {
    a = described({batch, out});
    b = described({out, in});
    c = described({batch, in});
  } else {
    a = described({out, batch}, true);
    b = described({batch, in});
    c = described({out, in});
  }
  const dnnl::matmul::primitive_desc desc(dnnl::matmul::desc(a, b, c), engine());
  return running(
      dnnl::matmul(desc),
      {{DNNL_ARG_SRC, at(a, of.in[0])}, {DNNL_ARG_WEIGHTS, at(b, of.in[1])}, {DNNL_ARG_DST, at(c, of.out[0])}});
}

// In the layouts that oneDNN chooses, on memory of its own.
std::function<void()> convolution(const Operation& of) {
  const auto [batch, groups, in, out] = std::array{of.sizes[0], of.sizes[1], of.sizes[2], of.sizes[3]};
  const std::int64_t side = of.sizes[4], window = of.sizes[5], stride = of.sizes[6], padding = of.sizes[7];
  const std::int64_t result = (side + 2 * padding - window) / stride + 1;
  const auto any = [](const Dims& dims) { return memory::desc(dims, memory::data_type::f32, memory::format_tag::any); };
  const memory::desc x = any({batch, groups * in, side, side});
  const memory::desc w = groups == 1 ? any({out, in, window, window}) : any({groups, out, in, window, window});
  const memory::desc y = any({batch, groups * out, result, result});
  const Dims strides{stride, stride}, paddings{padding, padding};
  constexpr auto direct = dnnl::algorithm::convolution_direct;
  const auto own = [](const memory::desc& desc) {
    memory made(desc, engine());
    std::fill_n(static_cast<float*>(made.get_data_handle()), desc.get_size() / sizeof(float), 0.5F);
    return made;
  };
  const dnnl::convolution_forward::primitive_desc forward(
      dnnl::convolution_forward::desc(dnnl::prop_kind::forward_training, direct, x, w, y, strides, paddings, paddings),
      engine());
  if (of.name == "conv") {
    return running(dnnl::convolution_forward(forward), {{DNNL_ARG_SRC, own(forward.src_desc())},
                                                        {DNNL_ARG_WEIGHTS, own(forward.weights_desc())},
                                                        {DNNL_ARG_DST, own(forward.dst_desc())}});
  }
  if (of.name == "conv data gradient") {
    const dnnl::convolution_backward_data::primitive_desc back(
        dnnl::convolution_backward_data::desc(direct, x, w, y, strides, paddings, paddings), engine(), forward);
    return running(dnnl::convolution_backward_data(back), {{DNNL_ARG_DIFF_SRC, own(back.diff_src_desc())},
                                                           {DNNL_ARG_WEIGHTS, own(back.weights_desc())},
                                                           {DNNL_ARG_DIFF_DST, own(back.diff_dst_desc())}});
  }
  const dnnl::convolution_backward_weights::primitive_desc back(
      dnnl::convolution_backward_weights::desc(direct, x, w, y, strides, paddings, paddings), engine(), forward);
  return running(dnnl::convolution_backward_weights(back), {{DNNL_ARG_SRC, own(back.src_desc())},
                                                            {DNNL_ARG_DIFF_WEIGHTS, own(back.diff_weights_desc())},
                                                            {DNNL_ARG_DIFF_DST, own(back.diff_dst_desc())}});
}

std::function<void()> element_wise(const Operation& of) {
  using dnnl::algorithm;
  static const std::map<std::string, algorithm> kUnary{{"relu", algorithm::eltwise_relu},
                                                       {"exp", algorithm::eltwise_exp},
                                                       {"log", algorithm::eltwise_log},
                                                       {"tanh", algorithm::eltwise_tanh},
                                                       {"sigmoid", algorithm::eltwise_logistic},
                                                       {"gelu", algorithm::eltwise_gelu_erf},
                                                       {"gelu_tanh", algorithm::eltwise_gelu_tanh},
                                                       {"abs", algorithm::eltwise_abs},
                                                       {"sqrt", algorithm::eltwise_sqrt}};
  static const std::map<std::string, algorithm> kBinary{{"add", algorithm::binary_add},
                                                        {"mul", algorithm::binary_mul},
                                                        {"sub", algorithm::binary_sub},
                                                        {"div", algorithm::binary_div},
                                                        {"maximum", algorithm::binary_max}};
  const memory::desc desc = described({of.sizes[0]});
  if (const auto found = kUnary.find(of.name); found != kUnary.end()) {
    const dnnl::eltwise_forward::primitive_desc primitive(
        dnnl::eltwise_forward::desc(dnnl::prop_kind::forward_inference, found->second, desc, 0.0F, 0.0F), engine());
    return running(dnnl::eltwise_forward(primitive),
                   {{DNNL_ARG_SRC, at(desc, of.in[0])}, {DNNL_ARG_DST, at(desc, of.out[0])}});
  }
  if (const auto found = kBinary.find(of.name); found != kBinary.end()) {
    const dnnl::binary::primitive_desc primitive(dnnl::binary::desc(found->second, desc, desc, desc), engine());
    return running(dnnl::binary(primitive), {{DNNL_ARG_SRC_0, at(desc, of.in[0])},
                                             {DNNL_ARG_SRC_1, at(desc, of.in[1])},
                                             {DNNL_ARG_DST, at(desc, of.out[0])}});
  }
  return {};
}

std::function<void()> softmax(const Operation& of) {
  const memory::desc desc = described({of.sizes[0], of.sizes[1], of.sizes[2]});
  const std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, at(desc, of.in[0])},
                                                  {DNNL_ARG_DST, at(desc, of.out[0])}};
  if (of.name == "softmax") {
    const dnnl::softmax_forward::primitive_desc primitive(
        dnnl::softmax_forward::desc(dnnl::prop_kind::forward_inference, desc, 1), engine());
    return running(dnnl::softmax_forward(primitive), arguments);
  }
  const dnnl::logsoftmax_forward::primitive_desc primitive(
      dnnl::logsoftmax_forward::desc(dnnl::prop_kind::forward_inference, desc, 1), engine());
  return running(dnnl::logsoftmax_forward(primitive), arguments);
}

std::function<void()> layer_norm(const Operation& of) {
  const memory::desc desc = described({of.sizes[0], of.sizes[1]});
  const memory::desc of_columns = described({of.sizes[1]});
  const auto flags = dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift;
  const dnnl::layer_normalization_forward::primitive_desc primitive(
      dnnl::layer_normalization_forward::desc(dnnl::prop_kind::forward_training, desc, 1e-5F, flags), engine());
  return running(dnnl::layer_normalization_forward(primitive),
                 {{DNNL_ARG_SRC, at(desc, of.in[0])},
                  {DNNL_ARG_DST, at(desc, of.out[0])},
                  {DNNL_ARG_SCALE, at(of_columns, of.in[1])},
                  {DNNL_ARG_SHIFT, at(of_columns, of.in[2])},
                  {DNNL_ARG_MEAN, memory(primitive.mean_desc(), engine())},
                  {DNNL_ARG_VARIANCE, memory(primitive.variance_desc(), engine())}});
}

std::function<void()> batch_norm(const Operation& of) {
  const memory::desc desc = described({of.sizes[0], of.sizes[1], of.sizes[2]});
  const memory::desc of_channels = described({of.sizes[1]});
  const bool training = of.name == "batch_norm";
  auto flags = dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift;
  if (!training) {
    flags |= dnnl::normalization_flags::use_global_stats;
  }
  const auto kind = training ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
  const dnnl::batch_normalization_forward::primitive_desc primitive(
      dnnl::batch_normalization_forward::desc(kind, desc, 1e-5F, flags), engine());
  return running(dnnl::batch_normalization_forward(primitive), {{DNNL_ARG_SRC, at(desc, of.in[0])},
                                                                {DNNL_ARG_DST, at(desc, of.out[0])},
                                                                {DNNL_ARG_SCALE, at(of_channels, of.in[1])},
                                                                {DNNL_ARG_SHIFT, at(of_channels, of.in[2])},
                                                                {DNNL_ARG_MEAN, at(of_channels, of.in[3])},
                                                                {DNNL_ARG_VARIANCE, at(of_channels, of.in[4])}});
}

std::function<void()> reduction(const Operation& of) {
  const bool all = of.name == "sum" || of.name == "max";
  const bool of_rows = of.name.ends_with(" of rows");
  const memory::desc in = described({of.sizes[0], of.sizes[1]});
  const memory::desc out = described({of_rows ? of.sizes[0] : 1, all || of_rows ? 1 : of.sizes[1]});
  const auto algorithm = of.name.starts_with("sum") ? dnnl::algorithm::reduction_sum : dnnl::algorithm::reduction_max;
  const dnnl::reduction::primitive_desc primitive(dnnl::reduction::desc(algorithm, in, out, 0.0F, 0.0F), engine());
  return running(dnnl::reduction(primitive), {{DNNL_ARG_SRC, at(in, of.in[0])}, {DNNL_ARG_DST, at(out, of.out[0])}});
}

std::function<void()> copy(const Operation& of) {
  static const std::map<std::string, memory::data_type> kTypes{{"copy to f32", memory::data_type::f32},
                                                               {"copy to bf16", memory::data_type::bf16}};
  const bool transposed = of.name == "copy transposed";
  const auto found = kTypes.find(of.name);
  if (!transposed && found == kTypes.end()) {
    return {};
  }
  const Dims dims(of.sizes.begin(), of.sizes.end());
  const memory in = at(described(dims, transposed), of.in[0]);
  const memory out = at(described(dims, false, transposed ? memory::data_type::f32 : found->second), of.out[0]);
  return running(dnnl::reorder(in, out), {{DNNL_ARG_FROM, in}, {DNNL_ARG_TO, out}});
}

std::function<void()> run_of(const Operation& of) {
  const std::string& name = of.name;
  if (name.starts_with("product")) return product(of);
  if (name.starts_with("conv")) return convolution(of);
  if (name == "softmax" || name == "log_softmax") return softmax(of);
  if (name == "layer_norm") return layer_norm(of);
  if (name == "batch_norm" || name == "batch_norm evaluation") return batch_norm(of);
  for (const char* reduced : {"sum", "max", "sum of rows", "max of rows", "sum of columns", "max of columns"}) {
    if (name == reduced) return reduction(of);
  }
  if (name.starts_with("copy ")) return copy(of);
  return of.sizes.size() == 1 ? element_wise(of) : std::function<void()>();
}

}  // namespace

void find_onednn(const Operation& operation, std::vector<Peer>& peers) {
  if (operation.dtype != "f32") {
    return;
  }
  omp_set_num_threads(1);
  try {
    if (auto run = run_of(operation)) {
      peers.push_back({"oneDNN", std::move(run)});
    }
  } catch (const dnnl::error&) {  // this primitive does not exist for this shape
  }
}

}  // namespace bench::kernel
