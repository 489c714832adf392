#include "conv.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

// Convolutions of dense tensors with two spatial dimensions, all of them NCHW or all of them NHWC. NVIDIA's library
// proposes engines as it likes. So do these: in 16 bits none unless channels are multiples of 8, none for the gradient
// of a weight with uneven paddings, and few that add to the result or compute an epilogue.

namespace emulated_gpu::cudnn {

namespace {

constexpr cudnnBackendAttributeName_t kForward[] = {
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC};
constexpr cudnnBackendAttributeName_t kBackwardData[] = {
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC};
constexpr cudnnBackendAttributeName_t kBackwardFilter[] = {
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC};

// The attributes of an operation: image, weight, output, alpha, beta, convolution.
const cudnnBackendAttributeName_t* names_of(const Object& operation) {
  switch (operation.type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR: return kBackwardData;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR: return kBackwardFilter;
    default: return kForward;
  }
}

bool is_backward_data(const Object& operation) {
  return operation.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
}
bool is_backward_filter(const Object& operation) {
  return operation.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;
}

/// A convolution's tensors and numbers. Channels are those of one group.
struct Convolution {
  Held image, weight, output;
  double alpha, beta;
  std::int64_t compute;  // type
  std::int64_t batch, groups, in_channels, out_channels;
  const std::int64_t *in, *out, *window, *stride, *dilation, *before, *behind;

  explicit Convolution(const Object& operation) {
    const auto* const names = names_of(operation);
    image = operation.object(names[0]);
    weight = operation.object(names[1]);
    output = operation.object(names[2]);
    alpha = operation.real(names[3]);
    beta = operation.real(names[4]);
    const Object& convolution = *operation.object(names[5]);
    const auto pair = [&](cudnnBackendAttributeName_t name) { return convolution.at(name).numbers.data(); };
    compute = convolution.number(CUDNN_ATTR_CONVOLUTION_COMP_TYPE);
    batch = sizes_of(*image)[0];
    in_channels = sizes_of(*weight)[1];
    groups = sizes_of(*image)[1] / in_channels;
    out_channels = sizes_of(*weight)[0] / groups;
    in = &sizes_of(*image)[2];
    out = &sizes_of(*output)[2];
    window = &sizes_of(*weight)[2];
    stride = pair(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
    dilation = pair(CUDNN_ATTR_CONVOLUTION_DILATIONS);
    before = pair(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
    behind = pair(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);
  }
};

/// The dimensions from the innermost one on.
using Order = std::array<std::size_t, 4>;
constexpr Order kNchw{3, 2, 1, 0};
constexpr Order kNhwc{1, 3, 2, 0};

bool is_dense(const Object& tensor, const Order& order) {
  if (sizes_of(tensor).size() != order.size()) {
    return false;
  }
  std::int64_t step = 1;
  for (const std::size_t d : order) {
    if (sizes_of(tensor)[d] < 1 || tensor.at(CUDNN_ATTR_TENSOR_STRIDES).numbers[d] != step) {
      return false;
    }
    step *= sizes_of(tensor)[d];
  }
  return step <= INT32_MAX;
}

/// The engines, in the order of proposals.
enum Engine : std::int64_t {
  kVarying = 11,  // adds in another order at each call
  kTransforming,  // Winograd's
  kGreedy,        // wants more workspace than a user has
  kFailing,       // does not compile
  kTensorCores,   // rounds f32 to TF32
  kBlocked,       // copies the weight to workspace
  kDirect,        // proposed as the last resort only
};
constexpr std::int64_t kGreed = std::int64_t{300} << 20;  // bytes

const Object& operation_of(const Object& graph) { return *graph.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).objects[0]; }
bool has_epilogue(const Object& graph) { return graph.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).objects.size() > 1; }

// The type of the factors; a result may be virtual and of another type.
std::int64_t factor_type(const Object& operation, const Convolution& c) {
  return type_of(is_backward_data(operation) ? *c.weight : *c.image);
}

bool suits(std::int64_t engine, const Object& graph) {
  const Object& operation = operation_of(graph);
  const Convolution c(operation);
  const std::int64_t type = factor_type(operation, c);
  const auto multiples_of = [&](std::int64_t n) { return c.in_channels % n == 0 && c.out_channels % n == 0; };
  const bool uneven = c.before[0] != c.behind[0] || c.before[1] != c.behind[1];
  if (type == CUDNN_DATA_DOUBLE) {
    return engine == kDirect && !has_epilogue(graph);
  }
  const bool narrow = type != CUDNN_DATA_FLOAT;
  if ((narrow && !multiples_of(8)) || (uneven && is_backward_filter(operation))) {
    return false;
  }
  switch (engine) {
    case kTransforming: return !narrow && c.window[0] == 3 && c.window[1] == 3 && c.stride[0] == 1 && c.stride[1] == 1;
    case kTensorCores: {
      const auto aligned = [](const Held& tensor) { return tensor->number(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT) >= 16; };
      return c.beta == 0 && multiples_of(narrow ? 8 : 4) && aligned(c.image) && aligned(c.weight) && aligned(c.output);
    }
    case kBlocked: return !narrow && c.beta == 0 && !(has_epilogue(graph) && is_backward_data(operation));
    case kDirect: return !narrow && !has_epilogue(graph);
    default: return true;
  }
}

}  // namespace

bool is_convolution(const Object& operation) {
  return operation.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR || is_backward_data(operation) ||
         is_backward_filter(operation);
}

cudnnStatus_t check_convolution(const Object& convolution) {
  if (convolution.values.size() != 7 || convolution.number(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS) != 2) {
    return refuse(kBad, "a convolution needs seven attributes, and two dimensions here");
  }
  if (convolution.number(CUDNN_ATTR_CONVOLUTION_CONV_MODE) != CUDNN_CROSS_CORRELATION) {
    return refuse(CUDNN_STATUS_NOT_SUPPORTED, "a mode that is not emulated");
  }
  const auto all_from = [&](cudnnBackendAttributeName_t name, std::int64_t least) {
    const auto& numbers = convolution.at(name).numbers;
    return numbers.size() == 2 && numbers[0] >= least && numbers[1] >= least;
  };
  return all_from(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 1) && all_from(CUDNN_ATTR_CONVOLUTION_DILATIONS, 1) &&
                 all_from(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 0) && all_from(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 0)
             ? kSuccess
             : refuse(kBad, "strides, dilations or paddings");
}

cudnnStatus_t read_convolution(const Object& operation, Operands& operands) {
  const auto* const names = names_of(operation);
  if (operation.values.size() != 6) {
    return refuse(kBad, "a convolution's operation needs three tensors, alpha, beta and a convolution");
  }
  const auto all_are = [&](auto&& fit) {
    return std::all_of(names, names + 3, [&](auto name) { return fit(*operation.object(name)); });
  };
  const auto all_dense = [&](const Order& order) {
    return all_are([&](const Object& tensor) { return is_dense(tensor, order); });
  };
  if (!all_are([](const Object& tensor) { return tensor.type == CUDNN_BACKEND_TENSOR_DESCRIPTOR; }) ||
      !(all_dense(kNchw) || all_dense(kNhwc))) {
    return refuse(CUDNN_STATUS_NOT_SUPPORTED, "tensors that are not all dense NCHW or NHWC, or have 2^31 elements");
  }
  if (operation.object(names[5])->type != CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR) {
    return refuse(kBad, "no convolution");
  }
  const std::int64_t in_group = sizes_of(*operation.object(names[1]))[1];
  const std::int64_t channels = sizes_of(*operation.object(names[0]))[1];
  if (channels % in_group != 0 || sizes_of(*operation.object(names[1]))[0] % (channels / in_group) != 0) {
    return refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "channels that do not make groups");
  }
  const Convolution c(operation);
  bool fits = sizes_of(*c.output)[0] == c.batch && sizes_of(*c.output)[1] == sizes_of(*c.weight)[0];
  for (int d = 0; d < 2; ++d) {
    const std::int64_t room = c.in[d] + c.before[d] + c.behind[d] - c.dilation[d] * (c.window[d] - 1) - 1;
    fits = fits && room >= 0 && room / c.stride[d] + 1 == c.out[d];
  }
  if (!fits) {
    return refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "the output's sizes do not follow from the others");
  }
  if (is_backward_data(operation)) {
    operands = {c.output, c.weight, c.image};
  } else if (is_backward_filter(operation)) {
    operands = {c.image, c.output, c.weight};
  } else {
    operands = {c.image, c.weight, c.output};
  }
  const std::int64_t type = type_of(*operands.first);
  const bool wide = type == CUDNN_DATA_DOUBLE;
  const bool one_type =
      type_of(*operands.second) == type && (type_of(*operands.result) == type || is_virtual(*operands.result));
  if (!one_type || is_virtual(*operands.first) || is_virtual(*operands.second)) {
    return refuse(CUDNN_STATUS_NOT_SUPPORTED, "types that differ, or a virtual factor");
  }
  if (c.compute != (wide ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT) || operation.at(names[3]).wide != wide ||
      operation.at(names[4]).wide != wide) {
    return refuse(CUDNN_STATUS_NOT_SUPPORTED, "alpha, beta and the sums are of f64 for tensors of f64, else of f32");
  }
  return c.beta != 0 && is_virtual(*operands.result) ? refuse(kBad, "beta for a virtual result") : kSuccess;
}

cudnnStatus_t check_convolution_graph(const Object& graph) {
  const auto& operations = graph.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).objects;
  Operands last;
  read_convolution(*operations[0], last);
  const std::vector<std::int64_t> channels{1, sizes_of(*last.result)[1], 1, 1};
  std::vector<Held> tensors{last.first, last.second, last.result};
  for (std::size_t i = 1; i < operations.size(); ++i) {
    Operands next;
    if (is_convolution(*operations[i]) || read_operation(*operations[i], next) != kSuccess) {
      return refuse(CUDNN_STATUS_NOT_SUPPORTED, "an epilogue that is not emulated");
    }
    const std::int64_t mode = pointwise_of(*operations[i]).number(CUDNN_ATTR_POINTWISE_MODE);
    const bool is_bias = mode == CUDNN_POINTWISE_ADD && i == 1;
    const bool is_relu = mode == CUDNN_POINTWISE_RELU_FWD && i + 1 == operations.size();
    if (!(is_bias || is_relu) || next.first != last.result || !is_virtual(*last.result) ||
        sizes_of(*next.result) != sizes_of(*last.result)) {
      return refuse(CUDNN_STATUS_NOT_SUPPORTED, "an epilogue that is not emulated");
    }
    if (is_bias && sizes_of(*next.second) != channels) {
      return refuse(CUDNN_STATUS_NOT_SUPPORTED, "not a bias of the channels");
    }
    tensors.insert(tensors.end(), {next.result, is_bias ? next.second : next.result});
    last = next;
  }
  const auto all_dense = [&](const Order& order) {
    return std::all_of(tensors.begin(), tensors.end(), [&](const Held& tensor) { return is_dense(*tensor, order); });
  };
  if (!all_dense(kNchw) && !all_dense(kNhwc)) {
    return refuse(CUDNN_STATUS_NOT_SUPPORTED, "an epilogue in another format");
  }
  return is_virtual(*last.result) ? refuse(kBad, "a virtual result that nothing reads") : kSuccess;
}

std::vector<std::int64_t> convolution_engines(const Object& graph, std::int64_t mode) {
  std::vector<std::int64_t> engines;
  for (std::int64_t engine = kVarying; engine <= kDirect; ++engine) {
    if ((engine == kDirect) == (mode == CUDNN_HEUR_MODE_FALLBACK) && suits(engine, graph)) {
      engines.push_back(engine);
    }
  }
  const Hostility mood(mood_of(graph), static_cast<std::uint64_t>(mode));
  if (mood.on() && !engines.empty()) {
    std::rotate(engines.begin(), engines.begin() + static_cast<std::ptrdiff_t>(mood.pick(0, engines.size())),
                engines.end());
    engines.resize(mood.pick(1, engines.size() + 1));
  }
  return engines;
}

std::vector<std::int64_t> notes_of(std::int64_t engine) {
  switch (engine) {
    case kVarying: return {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC};
    case kTransforming: return {CUDNN_NUMERICAL_NOTE_WINOGRAD, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6};
    case kTensorCores: return {CUDNN_NUMERICAL_NOTE_TENSOR_CORE};
    default: return {};
  }
}

bool can_compile(std::int64_t engine) { return engine != kFailing; }

std::int64_t convolution_workspace(std::int64_t engine, const Object& graph) {
  return engine == kGreedy ? kGreed : engine == kBlocked ? numel_of(*Convolution(operation_of(graph)).weight) * 4 : 0;
}

const char* convolution_name(std::int64_t engine) {
  switch (engine) {
    case kVarying: return "cudnn_conv_varying";
    case kTensorCores: return "cudnn_conv_tensor_cores";
    case kBlocked: return "cudnn_conv_blocked";
    case kDirect: return "cudnn_conv_direct";
    default: return "cudnn_conv_unwanted";
  }
}

namespace {

// Keeps 10 bits of a fraction, with halves going away from 0.
float as_tf32(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  const bool finite = (bits & 0x7F800000U) != 0x7F800000U;
  bits = finite ? (bits + 0x1000U) & ~0x1FFFU : bits;
  std::memcpy(&value, &bits, sizeof bits);
  return value;
}

// Calls body(first, second) with the positions of the factors of the k-th product of an element, if there is one.
// Products count from 0 to depth_of().
template <class Body>
void with_product(const Object& operation, const Convolution& c, std::int64_t at, std::int64_t k, Body&& body) {
  const std::int64_t h = c.in[0], w = c.in[1], p = c.out[0], q = c.out[1], r = c.window[0], s = c.window[1];
  std::int64_t n, group, in, out, oy, ox, wy, wx;  // batch, channels within a group, places of output and window
  if (is_backward_filter(operation)) {
    wx = at % s, wy = at / s % r, in = at / (s * r) % c.in_channels;
    out = at / (s * r * c.in_channels) % c.out_channels, group = at / (s * r * c.in_channels * c.out_channels);
    ox = k % q, oy = k / q % p, n = k / (q * p);
  } else if (is_backward_data(operation)) {
    wx = k % s, wy = k / s % r, out = k / (s * r);
    in = at / (w * h) % c.in_channels, group = at / (w * h * c.in_channels) % c.groups;
    n = at / (w * h * c.in_channels * c.groups);
    const std::int64_t y = at / w % h + c.before[0] - wy * c.dilation[0];
    const std::int64_t x = at % w + c.before[1] - wx * c.dilation[1];
    if (y < 0 || x < 0 || y % c.stride[0] != 0 || x % c.stride[1] != 0) {
      return;
    }
    oy = y / c.stride[0], ox = x / c.stride[1];
  } else {
    wx = k % s, wy = k / s % r, in = k / (s * r);
    ox = at % q, oy = at / q % p, out = at / (q * p) % c.out_channels;
    group = at / (q * p * c.out_channels) % c.groups, n = at / (q * p * c.out_channels * c.groups);
  }
  const std::int64_t y = oy * c.stride[0] + wy * c.dilation[0] - c.before[0];
  const std::int64_t x = ox * c.stride[1] + wx * c.dilation[1] - c.before[1];
  if (oy >= p || ox >= q || y < 0 || x < 0 || y >= h || x >= w) {
    return;
  }
  const std::int64_t image = (((n * c.groups + group) * c.in_channels + in) * h + y) * w + x;
  const std::int64_t weight = (((group * c.out_channels + out) * c.in_channels + in) * r + wy) * s + wx;
  const std::int64_t output = (((n * c.groups + group) * c.out_channels + out) * p + oy) * q + ox;
  if (is_backward_filter(operation)) {
    body(image, output);
  } else {
    body(is_backward_data(operation) ? output : image, weight);
  }
}

std::int64_t depth_of(const Object& operation, const Convolution& c) {
  if (is_backward_filter(operation)) {
    return c.batch * c.out[0] * c.out[1];
  }
  return (is_backward_data(operation) ? c.out_channels : c.in_channels) * c.window[0] * c.window[1];
}

template <class T>
std::vector<T> elements_of(const Object& tensor, const void* data, bool tf32) {
  std::vector<T> values(static_cast<std::size_t>(numel_of(tensor)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<T>(load(type_of(tensor), data, place_of(tensor, static_cast<std::int64_t>(i))));
    if (tf32) {
      values[i] = static_cast<T>(as_tf32(static_cast<float>(values[i])));
    }
  }
  return values;
}

template <class T>
void convolve(const Object& operation, std::int64_t engine, const void* first, const void* second, void* workspace,
              const std::function<void(std::int64_t, double)>& put) {
  static std::atomic<std::int64_t> calls = 0;
  const Convolution c(operation);
  Operands operands;
  read_convolution(operation, operands);
  const bool rounds = engine == kTensorCores || engine == kTransforming;
  const std::vector<T> a = elements_of<T>(*operands.first, first, rounds);
  std::vector<T> b = elements_of<T>(*operands.second, second, rounds);
  if (engine == kBlocked && !is_backward_filter(operation)) {  // through the workspace, which nobody else may touch
    std::memcpy(workspace, b.data(), b.size() * sizeof(T));
    std::memcpy(b.data(), workspace, b.size() * sizeof(T));
    std::memset(workspace, 0xCB, b.size() * sizeof(T));
  }
  const std::int64_t depth = depth_of(operation, c);
  const std::int64_t start = engine == kVarying ? ++calls * 7 % depth : 0;
  for (std::int64_t i = 0; i < numel_of(*operands.result); ++i) {
    T sum = 0;
    for (std::int64_t k = 0; k < depth; ++k) {
      with_product(operation, c, i, (k + start) % depth, [&](std::int64_t x, std::int64_t y) {
        sum += a[static_cast<std::size_t>(x)] * b[static_cast<std::size_t>(y)];
      });
    }
    put(i, c.alpha * static_cast<double>(sum));
  }
}

}  // namespace

double beta_of(const Object& operation) { return is_convolution(operation) ? Convolution(operation).beta : 0; }

void compute_convolution(const Object& operation, std::int64_t engine, const void* first, const void* second,
                         void* workspace, const std::function<void(std::int64_t, double)>& put) {
  if (Convolution(operation).compute == CUDNN_DATA_DOUBLE) {
    convolve<double>(operation, engine, first, second, workspace, put);
  } else {
    convolve<float>(operation, engine, first, second, workspace, put);
  }
}

void add_question(const Object& operation, const std::function<void(std::int64_t)>& add) {
  const Convolution c(operation);
  add(operation.type);
  add(c.beta != 0);
  for (int d = 0; d < 2; ++d) {
    for (const std::int64_t* numbers : {c.in, c.out, c.window, c.stride, c.dilation, c.before}) {
      add(numbers[d]);
    }
  }
}

}  // namespace emulated_gpu::cudnn
