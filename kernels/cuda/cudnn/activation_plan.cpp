#include <tandem/kernels/cuda/cudnn/activation_plan.h>

#include <cmath>
#include <utility>

#include <tandem/kernels/pointwise_formulas.h>

namespace tandem::inline v0::kernels::gpu::cudnn {

namespace {

// tandem's softplus is linear where s a > t; cuDNN always takes the logarithm. From this value on, f32 shows no
// difference.
constexpr double kLinear = 18;

/// cuDNN's operation for an op. Gradients that read the activation's result have none here, except ReLU's.
std::optional<cudnnPointwiseMode_t> mode_of(PointwiseOp op) {
  switch (op) {
    case PointwiseOp::relu: return CUDNN_POINTWISE_RELU_FWD;
    case PointwiseOp::sigmoid: return CUDNN_POINTWISE_SIGMOID_FWD;
    case PointwiseOp::tanh: return CUDNN_POINTWISE_TANH_FWD;
    case PointwiseOp::gelu: return CUDNN_POINTWISE_GELU_FWD;
    case PointwiseOp::gelu_tanh: return CUDNN_POINTWISE_GELU_APPROX_TANH_FWD;
    case PointwiseOp::silu: return CUDNN_POINTWISE_SWISH_FWD;
    case PointwiseOp::elu: return CUDNN_POINTWISE_ELU_FWD;
    case PointwiseOp::softplus: return CUDNN_POINTWISE_SOFTPLUS_FWD;
    case PointwiseOp::relu_grad: return CUDNN_POINTWISE_RELU_BWD;  // the result is positive where the input is
    case PointwiseOp::gelu_grad: return CUDNN_POINTWISE_GELU_BWD;
    case PointwiseOp::gelu_tanh_grad: return CUDNN_POINTWISE_GELU_APPROX_TANH_BWD;
    case PointwiseOp::silu_grad: return CUDNN_POINTWISE_SWISH_BWD;
    case PointwiseOp::elu_grad: return CUDNN_POINTWISE_ELU_BWD;
    case PointwiseOp::softplus_grad: return CUDNN_POINTWISE_SOFTPLUS_BWD;
    default: return std::nullopt;
  }
}

bool is_softplus(PointwiseOp op) { return op == PointwiseOp::softplus || op == PointwiseOp::softplus_grad; }
bool is_elu(PointwiseOp op) { return op == PointwiseOp::elu || op == PointwiseOp::elu_grad; }
bool takes_result(PointwiseOp op) { return op == PointwiseOp::sigmoid_grad || op == PointwiseOp::tanh_grad; }

/// The parts of a plan under construction.
class Builder {
 public:
  explicit Builder(const ActivationKey& key) : key_(key) {}

  /// Adds a tensor in memory.
  Handle tensor(std::size_t number) {
    Descriptor tensor = describe(static_cast<std::int64_t>(number), data_type(key_.dtype), key_.alignment[number]);
    return graph.add(tensor);
  }
  /// Adds a result that stays in registers.
  Handle between() {
    Descriptor tensor = describe(next_++, CUDNN_DATA_FLOAT, 4);
    return graph.add(tensor.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, true));
  }
  Handle one() {
    takes_one = true;
    Descriptor tensor = dense_tensor(ActivationPlan::kOne, CUDNN_DATA_FLOAT, {1, 1, 1}, 4);
    return graph.add(tensor.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, true));
  }

  void forward(cudnnPointwiseMode_t mode, Handle x, Handle y) {
    Descriptor operation = describe(mode);
    graph.add_operation(
        operation.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x).set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y));
  }
  void backward(cudnnPointwiseMode_t mode, Handle dy, Handle x, Handle dx) {
    Descriptor operation = describe(mode);
    graph.add_operation(operation.set(CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, dy)
                            .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x)
                            .set(CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, dx));
  }
  void binary(cudnnPointwiseMode_t mode, Handle a, Handle b, Handle y) {
    Descriptor operation = describe(mode);
    graph.add_operation(operation.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, a)
                            .set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b)
                            .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y));
  }

  Graph graph{};
  bool takes_one = false;

 private:
  // Tensors have three dimensions, because cuDNN 9.19 has no kernel for fewer or for four.
  Descriptor describe(std::int64_t number, cudnnDataType_t type, std::int64_t alignment) const {
    return dense_tensor(number, type, {1, 1, key_.numel}, alignment);
  }
  Descriptor describe(cudnnPointwiseMode_t mode) {
    Descriptor pointwise(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    pointwise.set(CUDNN_ATTR_POINTWISE_MODE, mode).set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
    if (is_elu(key_.op)) {
      pointwise.set(CUDNN_ATTR_POINTWISE_ELU_ALPHA, key_.s);
    }
    if (is_softplus(key_.op)) {
      pointwise.set(CUDNN_ATTR_POINTWISE_SOFTPLUS_BETA, key_.s);
    }
    Descriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, graph.add(pointwise));
    return operation;
  }

  const ActivationKey& key_;
  std::int64_t next_ = ActivationPlan::kOne + 1;
};

// Follows the formulas of pointwise_formulas.h step by step, because cuDNN's own gradients want the activation's input.
void add_gradient_from_result(Builder& build, PointwiseOp op) {
  const Handle out = build.tensor(0);
  const Handle g = build.tensor(1);
  const Handle y = build.tensor(2);
  const Handle slope = build.between();
  if (op == PointwiseOp::tanh_grad) {  // g (1 - y y)
    const Handle square = build.between();
    build.binary(CUDNN_POINTWISE_MUL, y, y, square);
    build.binary(CUDNN_POINTWISE_SUB, build.one(), square, slope);
  } else {  // g ((1 - y) y)
    const Handle rest = build.between();
    build.binary(CUDNN_POINTWISE_SUB, build.one(), y, rest);
    build.binary(CUDNN_POINTWISE_MUL, rest, y, slope);
  }
  build.binary(CUDNN_POINTWISE_MUL, g, slope, out);
}

void add_operations(Builder& build, PointwiseOp op) {
  if (takes_result(op)) {
    add_gradient_from_result(build, op);
    return;
  }
  const Handle out = build.tensor(0);
  const Handle first = build.tensor(1);
  if (arity(op) == 1) {
    build.forward(*mode_of(op), first, out);
  } else {
    build.backward(*mode_of(op), first, build.tensor(2), out);
  }
}

}  // namespace

bool depends_on_s(PointwiseOp op) noexcept { return is_elu(op) || is_softplus(op); }

bool has_activation(const Pointwise& kernel) noexcept {
  if (kernel.dtype != DType::f32 && kernel.dtype != DType::bf16 && kernel.dtype != DType::f16) {
    return false;
  }
  if (is_softplus(kernel.op) && !(kernel.t >= kLinear && kernel.s > 0)) {
    return false;
  }
  return (takes_result(kernel.op) || mode_of(kernel.op)) && (!depends_on_s(kernel.op) || std::isfinite(kernel.s));
}

std::optional<ActivationPlan> make_activation_plan(cudnnHandle_t handle, const ActivationKey& key) {
  try {
    Builder build(key);
    add_operations(build, key.op);
    if (std::vector<Plan> plans = make_plans(handle, std::move(build.graph), 1); !plans.empty()) {
      return ActivationPlan{std::move(plans.front()), build.takes_one};
    }
  } catch (const Refusal&) {  // cuDNN has no kernel
  }
  return std::nullopt;
}

}  // namespace tandem::inline v0::kernels::gpu::cudnn
