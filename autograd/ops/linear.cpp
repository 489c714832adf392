#include <optional>
#include <utility>

#include <tandem/autograd/ops/common.h>
#include <tandem/autograd/ops/matmul.h>

// A layer, and the ReLU that may follow it. linear_relu() computes both in one pass. relu(linear(...)) overwrites the
// result of linear() and joins its node. In the backward pass, the ReLU has left a note on its result: the next layer
// reads the note and applies the ReLU's mask in the product that computes the gradient of that result.

namespace tandem::inline v0 {

using namespace autograd;

/// A note on the result of a ReLU: its gradient may be written as 0 wherever the result is not positive.
struct autograd::GradientNote {
  core::Ref<detail::Storage> bits{};  // kernels::Matmul::relu_bits of the result, if they were written
  Node* wants_sums = nullptr;         // the ReLU's layer, if its bias needs the sums over the gradient's columns
  // The answer, if the writer of the gradient computed these sums: either sums of their own, or the memory of the
  // bias's gradient, where they are.
  core::Ref<detail::Storage> sums{};
  View bias{};

  /// Whether `bias` still is that memory.
  bool has_prepared_bias() const { return bias.defined() && Gradients(*wants_sums).is_prepared(2); }
  /// Where a product writes the sums.
  void* place_for_sums(std::int64_t count, DType dtype, Device device);
};

namespace {

// The note of every ReLU that is not part of linear(). Nothing writes to it, because it does not want sums.
GradientNote& plain_relu() {
  static auto* note = new GradientNote;  // outlives every node
  return *note;
}

void check_linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const Shape& in = x.shape();
  const Shape& w = weight.shape();
  if (w.ndim() != 2) [[unlikely]] {
    fail<ShapeError>("{}the weight must be [out, in], got {}", core::MessagePrefix{"linear"}, w);
  }
  if (in.ndim() == 0 || in.back() != w[1]) [[unlikely]] {
    fail<ShapeError>("{}input {} has {} features, layer expects {} (weight {}) [TDM-E101]",
                     core::MessagePrefix{"linear"}, in, in.ndim() == 0 ? 0 : in.back(), w[1], w);
  }
  if (!(x.device() == weight.device())) [[unlikely]] {
    fail<DeviceError>("{}input is on {}, weight on {}. Move the input: x.to(\"{}\") [TDM-E103]",
                      core::MessagePrefix{"linear"}, x.device(), weight.device(), weight.device());
  }
  if (x.dtype() != weight.dtype()) [[unlikely]] {
    fail<DTypeError>("{}input is {}, weight {}. Convert the input: x.to(DType::{}) [TDM-E102]",
                     core::MessagePrefix{"linear"}, x.dtype(), weight.dtype(), weight.dtype());
  }
  check_floating("linear", x);
  if (bias.defined()) {
    check_same_kind("linear", weight, bias);
    if (!(bias.shape() == Shape{w[0]})) [[unlikely]] {
      fail<ShapeError>("{}bias {} does not fit the weight {}: expected [{}]", core::MessagePrefix{"linear"},
                       bias.shape(), w, w[0]);
    }
  }
}

// [..., features] as a matrix: `view` itself, or another view in `copy`.
const View& as_rows(const View& view, View& copy) {
  if (view.sizes.ndim() == 2) {
    return detail::matrix_like(view, copy);
  }
  std::int64_t rows = 1;
  for (int dim = 0; dim + 1 < view.sizes.ndim(); ++dim) {
    rows *= view.sizes[dim];
  }
  return copy = detail::matrix_like(*detail::try_reshape(detail::contiguous(view), {rows, view.sizes.back()}));
}

// `count` elements of a storage.
View flat(core::Ref<detail::Storage> storage, std::int64_t count, DType dtype) {
  return {.storage = std::move(storage), .dtype = dtype, .sizes = {count}, .strides = {1}};
}

}  // namespace

// If nothing has been added to the bias's gradient yet, its memory takes the sums.
void* autograd::GradientNote::place_for_sums(std::int64_t count, DType dtype, Device device) {
  sums = nullptr;
  bias = Gradients(*wants_sums).prepare(2);
  if (bias.defined()) {
    return bias.data();
  }
  const View own = detail::empty_view({count}, dtype, device);
  sums = own.storage;
  return own.data();
}

namespace {

class LinearNode final : public Node {
 public:
  LinearNode(const char* op, const Tensor& x, const Tensor& weight, const Shape& matrix, bool fuses)
      : Node(op, 1),
        kept_(Kept{.x = saved_for(weight, x), .weight = saved_for(x, weight), .relu = {}}),
        matrix_(matrix),
        fuses_(fuses) {}

  /// Whether a ReLU may overwrite the layer's result: the backward pass needs nothing else of the plain result.
  bool may_join_relu() noexcept { return !is_relu_ && !released() && !output(0).hooks && !output(0).retained; }
  /// Records that `result` is now relu(product). `bits` are its kernels::Matmul::relu_bits, if they were written.
  void join_relu(const View& result, const View& bits);

  void apply(Gradients& g) override;
  bool has_graph() const noexcept override { return true; }
  void apply_graph(GradientGraph& g) override;
  bool add_sample_squares(SampleSquares& g) override;
  void release() noexcept override {
    kept_.reset();
    note_.bits = nullptr;
    note_.sums = nullptr;
    note_.bias = {};
  }
  bool released() const noexcept override { return !kept_.has_value(); }

 private:
  struct Kept {
    Saved x, weight;
    Saved relu;  // the result, if it is a ReLU's
  };

  const View& output_gradient(Gradients& g, View& copy) const;
  void weight_gradient(Gradients& g, const View& grad, std::optional<Destination>& bias) const;
  static void bias_gradient(const View& grad, const Destination& to);
  void input_gradient(Gradients& g, const View& grad) const;

  std::optional<Kept> kept_;
  Shape matrix_;  // [rows, out]
  bool fuses_;    // products write bits and sums along the way
  bool is_relu_ = false;
  GradientNote note_{};
};

void LinearNode::join_relu(const View& result, const View& bits) {
  set_op("linear_relu");
  is_relu_ = true;
  kept_->relu = Saved(result);
  note_.bits = bits.storage;
  note_.wants_sums = fuses_ && edge(2).node ? this : nullptr;
  output(0).note = &note_;
}

void LinearNode::apply(Gradients& g) {
  View copy;
  const View& grad = output_gradient(g, copy);
  std::optional<Destination> bias;  // until the gradient of the bias is written
  View early = std::exchange(note_.bias, View());
  core::Ref<detail::Storage> sums = std::move(note_.sums);
  const bool has_sums = g.is_answered() && g.is_as_noted();
  if (has_sums && early.defined() && g.is_prepared(2)) {
    g.accept(2, std::move(early));
  } else if (has_sums && sums && edge(2).node->is_leaf()) {
    g.deliver(2, flat(std::move(sums), matrix_[1], grad.dtype), true);
  } else if (has_sums && sums) {  // a replica's gradients have a place, so that they can be joined by one copy
    const Destination to = g.destination(2);
    detail::copy(to.view, flat(std::move(sums), matrix_[1], grad.dtype), to.accumulate);
  } else if (g.wants(2)) {
    bias = g.destination(2);
  }
  if (g.wants(1)) {
    weight_gradient(g, grad, bias);
  }
  if (bias) {
    bias_gradient(grad, *bias);
  }
  if (g.wants(0)) {
    input_gradient(g, grad);
  }
}

void LinearNode::apply_graph(GradientGraph& g) {
  const Tensor grad = is_relu_ ? relu_gradient(g.output(), g.result(kept_->relu)) : g.output();
  const Tensor rows = grad.reshape(matrix_);
  if (g.wants(0)) {
    g.give(0, rows.matmul(g.input(1, kept_->weight)).reshape(g.input_sizes(0)));
  }
  if (g.wants(1)) {
    const Tensor x = g.input(0, kept_->x);
    g.give(1, rows.t().matmul(x.reshape({matrix_[0], x.size(-1)})));
  }
  if (g.wants(2)) {
    g.give(2, rows.sum({0}));
  }
}

bool LinearNode::add_sample_squares(SampleSquares& g) {
  Tensor grad = g.output();
  grad = is_relu_ ? relu_gradient(grad, g.constant(kept_->relu).reshape(grad.shape())) : grad;
  const Tensor rows = grad.reshape({g.batch(), -1, matrix_[1]});
  if (g.wants(1)) {
    const Tensor whole = g.constant(kept_->x);
    const Tensor x = whole.reshape({g.batch(), -1, whole.size(-1)});
    if (x.size(1) == 1) {  // the gradient is an outer product
      g.add_squares(g.squared(rows).sum({1, 2}) * g.squared(x).sum({1, 2}));
    } else {
      g.add_each([&](std::int64_t b) { return rows[b].t().matmul(x[b]); });
    }
  }
  if (g.wants(2)) {
    g.add(rows.sum({1}));
  }
  return true;
}

// The gradient of the product, as a dense matrix: without the ReLU. The result is in `copy`, or that of the output.
const View& LinearNode::output_gradient(Gradients& g, View& copy) const {
  const View& given = g.output();
  const bool is_matrix = given.sizes.ndim() == 2;
  const View& grad =
      is_matrix ? detail::contiguous(given, copy) : copy = *detail::try_reshape(detail::contiguous(given), matrix_);
  if (!is_relu_ || g.is_as_noted()) {
    return grad;
  }
  const View result = *detail::try_reshape(kept_->relu.get(g), matrix_);
  View masked = detail::empty_view(matrix_, grad.dtype, grad.device());
  detail::pointwise(PointwiseOp::relu_grad, masked, {&grad, &result});
  return copy = std::move(masked);
}

// grad^T x. The same product sums the gradient of the bias wherever that saves a pass.
void LinearNode::weight_gradient(Gradients& g, const View& grad, std::optional<Destination>& bias) const {
  View copy;
  const View& x = as_rows(kept_->x.get(g), copy);
  if (detail::fuses_updates() && postpone_product(g, 1, detail::transpose(grad, 0, 1), x)) [[unlikely]] {
    return;
  }
  const Destination to = g.destination(1);
  const bool along = fuses_ && bias && bias->accumulate == Accumulate::no && to.view.numel() > 0;
  multiply(to.view, MatrixIn(grad).transposed(), MatrixIn(x), to.accumulate,
           {.a_sums = along ? bias->view.data() : nullptr});
  if (along) {
    bias.reset();
  }
}

void LinearNode::bias_gradient(const View& grad, const Destination& to) {
  detail::sum_to(to.view, grad, to.accumulate);
}

// grad W. If a ReLU left a note on x, the product applies the ReLU's mask, which is the saved x.
void LinearNode::input_gradient(Gradients& g, const View& grad) const {
  const Destination to = g.destination(0);
  View copy;
  const View& weight = detail::matrix_like(kept_->weight.get(g), copy);
  const Shape matrix{matrix_[0], weight.sizes[1]};
  GradientNote* note = g.note(0);
  Epilogue after;
  if (note != nullptr && g.wants(1) && kept_->x.get(g).is_contiguous()) {
    after.relu_mask = kept_->x.get(g).data();
    if (to.view.numel() > 0) {
      after.relu_mask_bits = note->bits ? flat(note->bits, 0, DType::u8).data() : nullptr;
      if (note->wants_sums != nullptr) {
        // A second layer that reads the same x sums up the gradients of both.
        after.column_sums = note->has_prepared_bias() && g.is_input_answered(0)
                                ? note->bias.data()
                                : note->place_for_sums(matrix[1], grad.dtype, grad.device());
        g.set_answered(0);
      }
    }
  }
  multiply(to.view, MatrixIn(grad), MatrixIn(weight), to.accumulate, after);
  if (after.relu_mask != nullptr) {
    g.set_as_noted(0);
  }
}

Tensor run(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias, bool relu) {
  check_linear(x, weight, bias);
  View rows;
  View copy_of_weight;
  View copy_of_bias;
  const View& in = as_rows(x.raw(), rows);
  const View& w = detail::matrix_like(weight.raw(), copy_of_weight);
  const void* b = bias.defined() ? detail::contiguous(bias.raw(), copy_of_bias).data() : nullptr;
  Shape sizes = x.shape();
  sizes[sizes.ndim() - 1] = w.sizes[0];
  Tensor result(detail::empty_view(sizes, in.dtype, in.device()));
  const View& out = result.raw();
  const Shape matrix{in.sizes[0], w.sizes[0]};
  const bool recorded = records({&x, &weight, &bias});
  const bool fuses = recorded && kernels::fuses_backward(out.device());
  View bits;
  if (relu && recorded && kernels::writes_relu_bits(out.device(), out.dtype)) {
    bits = detail::empty_view({matrix[0], kernels::relu_bits_stride(matrix[1])}, DType::u8, out.device());
  }
  multiply(out, MatrixIn(in), MatrixIn(w).transposed(), Accumulate::no,
           {.bias = b, .relu = relu, .relu_bits = data_of(bits)});
  if (recorded) {
    auto* const node = new LinearNode(op, x, weight, matrix, fuses);
    core::Ref<Node> owner(node);
    node->connect({&x, &weight, &bias});
    set_history(result, std::move(owner));
    if (relu) {
      node->join_relu(out, bits);
    }
  }
  return result;
}

}  // namespace

// Being the only owner of all three (tensor, memory, node) proves that no other handle, view, saved value or op sees
// the plain result.
bool autograd::join_relu(const Tensor& x) {
  const detail::TensorImpl* impl = x.unresolved();
  if (impl == nullptr || !impl->history || !core::thread_state().grad_enabled) {
    return false;
  }
  const detail::Storage& storage = *impl->view.storage;
  if (!impl->is_unique() || !storage.is_unique() || !impl->history->is_unique() ||
      impl->history_version != storage.version()) {
    return false;
  }
  auto* const node = dynamic_cast<LinearNode*>(impl->history.get());
  if (node == nullptr || !node->may_join_relu()) {
    return false;
  }
  detail::pointwise(PointwiseOp::relu, impl->view, {&impl->view});
  node->join_relu(impl->view, {});
  return true;
}

void autograd::let_products_mask(const Tensor& result) {
  if (auto* node = static_cast<Node*>(result.get()->history.get()); node != nullptr) {
    node->output(0).note = &plain_relu();
  }
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (lowers({&x, &weight, &bias})) [[unlikely]] {
    return linear(lowered(x), lowered(weight), lowered(bias));
  }
  return run("linear", x, weight, bias, false);
}

Tensor linear_relu(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (lowers({&x, &weight, &bias})) [[unlikely]] {
    return linear_relu(lowered(x), lowered(weight), lowered(bias));
  }
  return run("linear_relu", x, weight, bias, true);
}

}  // namespace tandem::inline v0
