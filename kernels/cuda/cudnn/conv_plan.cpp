#include <tandem/kernels/cuda/cudnn/conv_plan.h>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace tandem::inline v0::kernels::gpu::cudnn {

namespace {

constexpr std::int64_t kMostWorkspace = std::int64_t{256} << 20;
constexpr std::int64_t kBetween = ConvPlan::kBias + 1;  // the sum before the bias is added

using Sizes4 = std::array<std::int64_t, 4>;

/// cuDNN's names for one kind. The attributes have other values for each kind, but equal meanings.
struct Names {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t convolution, alpha, beta, image, weight, output;
  // Unique ids of the three tensors:
  std::size_t image_number, weight_number, output_number;
};

Names names_of(ConvKind kind) {
  switch (kind) {
    case ConvKind::in_grad:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              0,
              2,
              1};
    case ConvKind::weight_grad:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
              2,
              0,
              1};
    default:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
              1,
              2,
              0};
  }
}

std::vector<std::int64_t> pair_of(const Sizes2& sizes) { return {sizes[0], sizes[1]}; }

/// The parts of a plan under construction.
class ConvBuilder {
 public:
  explicit ConvBuilder(const ConvKey& key)
      : key_(key), compute_(key.dtype == DType::f64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT) {}

  /// The convolution, and behind it the bias.
  void add_operations() {
    const ConvShape& shape = key_.shape;
    const Names names = names_of(key_.kind);
    const Handle image =
        tensor(names.image_number, {shape.batch, shape.groups * shape.in_channels, shape.in[0], shape.in[1]});
    const Handle weight = tensor(
        names.weight_number, {shape.groups * shape.out_channels, shape.in_channels, shape.window[0], shape.window[1]});
    const Handle output =
        tensor(names.output_number, {shape.batch, shape.groups * shape.out_channels, shape.out[0], shape.out[1]});
    Descriptor operation(names.operation);
    operation.set(names.convolution, convolution())
        .set(names.image, image)
        .set(names.weight, weight)
        .set(names.output, output);
    set_factor(operation, names.alpha, 1);
    set_factor(operation, names.beta, key_.accumulate ? 1 : 0);
    operations.push_back(plan.add(operation));
    if (key_.bias) {
      add_bias();
    }
  }

  ConvPlan plan{};
  std::vector<Handle> operations{};

 private:
  /// A dense tensor in memory. If a bias follows, the convolution's own result stays in registers.
  Handle tensor(std::size_t number, const Sizes4& sizes) {
    if (number != ConvPlan::kResult || !key_.bias) {
      return in_memory(number, sizes);
    }
    result_ = sizes;
    Descriptor between = describe(kBetween, compute_, sizes);
    return between_ = plan.add(between.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kMostTensorAlignment)
                                   .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, true));
  }
  Handle in_memory(std::size_t number, const Sizes4& sizes) {
    Descriptor tensor = describe(static_cast<std::int64_t>(number), data_type(key_.dtype), sizes);
    return plan.add(tensor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, key_.alignment[number]));
  }
  static Descriptor describe(std::int64_t number, cudnnDataType_t type, const Sizes4& sizes) {
    Descriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, number)
        .set(CUDNN_ATTR_TENSOR_DATA_TYPE, type)
        .set(CUDNN_ATTR_TENSOR_DIMENSIONS, std::vector<std::int64_t>(sizes.begin(), sizes.end()))
        .set(CUDNN_ATTR_TENSOR_STRIDES,
             std::vector<std::int64_t>{sizes[1] * sizes[2] * sizes[3], sizes[2] * sizes[3], sizes[3], std::int64_t{1}});
    return tensor;
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
    return plan.add(convolution);
  }
  /// Factors have the type in which the convolution is computed.
  void set_factor(Descriptor& operation, cudnnBackendAttributeName_t name, int value) const {
    if (compute_ == CUDNN_DATA_DOUBLE) {
      operation.set(name, static_cast<double>(value));
    } else {
      operation.set(name, static_cast<float>(value));
    }
  }
  void add_bias() {
    Descriptor add(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    add.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_POINTWISE_ADD).set(CUDNN_ATTR_POINTWISE_MATH_PREC, compute_);
    Descriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, plan.add(add))
        .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, between_)
        .set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, in_memory(ConvPlan::kBias, {1, result_[1], 1, 1}))
        .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, in_memory(ConvPlan::kResult, result_));
    operations.push_back(plan.add(operation));
  }

  const ConvKey& key_;
  cudnnDataType_t compute_;
  Handle between_ = nullptr;
  Sizes4 result_{};
};

/// Engines with less exact sums than our own kernel's are not wanted: those that round factors or sums to fewer bits,
/// and those whose transforms spread rounding, and NaN, over neighbouring outputs.
EngineLimits limits_of(const ConvKey& key) {
  EngineLimits limits{
      .most_workspace = kMostWorkspace,
      .unwanted = {CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION,
                   CUDNN_NUMERICAL_NOTE_FFT, CUDNN_NUMERICAL_NOTE_WINOGRAD, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4,
                   CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13}};
  if (key.deterministic) {
    limits.unwanted.push_back(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
  }
  if (key.dtype == DType::f32 && !key.tf32) {
    limits.unwanted.push_back(CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
  }
  return limits;
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

std::optional<ConvPlan> make_conv_plan(cudnnHandle_t handle, const ConvKey& key) {
  try {
    ConvBuilder build(key);
    build.add_operations();
    if (finish_plan(handle, build.plan, build.operations, limits_of(key))) {
      return std::move(build.plan);
    }
  } catch (const Refusal&) {  // cuDNN has no engine
  }
  return std::nullopt;
}

}  // namespace tandem::inline v0::kernels::gpu::cudnn
