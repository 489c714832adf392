#include <tandem/kernels/cuda/cudnn/conv_plan.h>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace tandem::inline v0::kernels::gpu::cudnn {

namespace {

constexpr std::int64_t kSum = kConvBias + 1;  // before the bias is added
constexpr std::int64_t kBiased = kSum + 1;    // before the ReLU

using Sizes4 = std::vector<std::int64_t>;

/// The attributes of the three operations follow each other in one order.
constexpr int kAlpha = 0, kBeta = 1, kConvolution = 2, kWeight = 3, kImage = 4, kOutput = 5;
static_assert(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA + kOutput == CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y);
static_assert(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA + kImage == CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX);
static_assert(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA + kWeight ==
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW);

/// cuDNN's names for a kind, and the unique ids of its tensors.
struct Names {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t first;
  std::size_t image, weight, output;

  cudnnBackendAttributeName_t operator[](int attribute) const {
    return static_cast<cudnnBackendAttributeName_t>(first + attribute);
  }
};
constexpr Names kForward{CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 1, 2, 0};
constexpr Names kInGrad{CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, 0, 2, 1};
constexpr Names kWeightGrad{CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, 2, 0, 1};

std::vector<std::int64_t> pair_of(const Sizes2& sizes) { return {sizes[0], sizes[1]}; }

/// A graph under construction.
class ConvBuilder {
 public:
  explicit ConvBuilder(const ConvKey& key)
      : key_(key), compute_(key.dtype == DType::f64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT) {}

  /// The convolution, and behind it the bias and the ReLU.
  void add_operations() {
    const ConvShape& shape = key_.shape;
    const Names& names = key_.kind == ConvKind::forward   ? kForward
                         : key_.kind == ConvKind::in_grad ? kInGrad
                                                          : kWeightGrad;
    const std::int64_t ins = shape.groups * shape.in_channels;
    const std::int64_t outs = shape.groups * shape.out_channels;
    Descriptor operation(names.operation);
    operation.set(names[kConvolution], convolution())
        .set(names[kImage], tensor(names.image, {shape.batch, ins, shape.in[0], shape.in[1]}))
        .set(names[kWeight], tensor(names.weight, {outs, shape.in_channels, shape.window[0], shape.window[1]}))
        .set(names[kOutput], tensor(names.output, {shape.batch, outs, shape.out[0], shape.out[1]}));
    set_factor(operation, names[kAlpha], 1);
    set_factor(operation, names[kBeta], key_.accumulate ? 1 : 0);
    graph.add_operation(operation);
    Handle last = between_;
    if (key_.bias) {
      const Handle bias = in_memory(kConvBias, {1, result_[1], 1, 1});
      const Handle to = key_.relu ? in_registers(kBiased) : in_memory(kConvResult, result_);
      Descriptor add = pointwise(CUDNN_POINTWISE_ADD, last, to);
      graph.add_operation(add.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, bias));
      last = to;
    }
    if (key_.relu) {
      Descriptor relu = pointwise(CUDNN_POINTWISE_RELU_FWD, last, in_memory(kConvResult, result_));
      graph.add_operation(relu);
    }
  }

  Graph graph{};

 private:
  /// A dense tensor in memory. If more follows, the convolution's own result stays in registers.
  Handle tensor(std::size_t number, const Sizes4& sizes) {
    if (number != kConvResult || !(key_.bias || key_.relu)) {
      return in_memory(number, sizes);
    }
    result_ = sizes;
    return between_ = in_registers(kSum);
  }
  Handle in_registers(std::int64_t number) {
    Descriptor between = dense_tensor(number, compute_, result_, kMostTensorAlignment, key_.format);
    return graph.add(between.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, true));
  }
  Handle in_memory(std::size_t number, const Sizes4& sizes) {
    Descriptor tensor = dense_tensor(static_cast<std::int64_t>(number), data_type(key_.dtype), sizes,
                                     key_.alignment[number], key_.format);
    return graph.add(tensor);
  }

  Handle convolution() {
    const ConvShape& shape = key_.shape;
    Descriptor convolution(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    convolution.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::int64_t{2})
        .set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, compute_)
        .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION)
        .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, pair_of(shape.stride))
        .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, pair_of(shape.dilation))
        .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, pair_of(shape.padding))
        .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, pair_of(*padding_behind(shape)));
    return graph.add(convolution);
  }
  /// Factors have the type in which the convolution is computed.
  void set_factor(Descriptor& operation, cudnnBackendAttributeName_t name, int value) const {
    if (compute_ == CUDNN_DATA_DOUBLE) {
      operation.set(name, static_cast<double>(value));
    } else {
      operation.set(name, static_cast<float>(value));
    }
  }
  /// An operation from x to y, without further tensors.
  Descriptor pointwise(cudnnPointwiseMode_t mode, Handle x, Handle y) {
    Descriptor what(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    what.set(CUDNN_ATTR_POINTWISE_MODE, mode).set(CUDNN_ATTR_POINTWISE_MATH_PREC, compute_);
    Descriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, graph.add(what))
        .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x)
        .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    return operation;
  }

  const ConvKey& key_;
  cudnnDataType_t compute_;
  Handle between_ = nullptr;
  Sizes4 result_{};
};

/// Engines with less exact sums than our own kernel's are not wanted: those that round factors or sums to fewer bits,
/// and those whose transforms spread rounding, and NaN, over neighbouring outputs.
Notes unwanted_notes(const ConvKey& key) {
  Notes notes{CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS,
              CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION,
              CUDNN_NUMERICAL_NOTE_FFT,
              CUDNN_NUMERICAL_NOTE_WINOGRAD,
              CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4,
              CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6,
              CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13};
  if (key.deterministic) {
    notes.push_back(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
  }
  if (key.dtype == DType::f32 && !key.tf32) {
    notes.push_back(CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
  }
  return notes;
}

}  // namespace

std::optional<Sizes2> padding_behind(const ConvShape& shape) {
  Sizes2 behind{};
  for (std::size_t d = 0; d < behind.size(); ++d) {
    const std::int64_t span = shape.dilation[d] * (shape.window[d] - 1) + 1;
    const std::int64_t before = shape.in[d] + shape.padding[d];
    // The last window may leave elements unread, so several paddings give one result. Few engines take two different
    // paddings: that in front is tried first.
    const std::int64_t needed = std::max((shape.out[d] - 1) * shape.stride[d] + span - before, std::int64_t{0});
    const auto gives_out = [&](std::int64_t padding) {
      const std::int64_t room = before + padding - span;
      return room >= 0 && room / shape.stride[d] + 1 == shape.out[d];
    };
    behind[d] = gives_out(shape.padding[d]) ? shape.padding[d] : needed;
    if (!gives_out(behind[d])) {
      return std::nullopt;
    }
  }
  return behind;
}

std::vector<Plan> make_conv_plans(cudnnHandle_t handle, const ConvKey& key, std::size_t most) {
  try {
    ConvBuilder build(key);
    build.add_operations();
    return make_plans(handle, std::move(build.graph), most, unwanted_notes(key));
  } catch (const Refusal&) {  // cuDNN has no engine
    return {};
  }
}

}  // namespace tandem::inline v0::kernels::gpu::cudnn
