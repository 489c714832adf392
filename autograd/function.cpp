#include <tandem/autograd/function.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_set>
#include <utility>

#include <cxxabi.h>

#include <tandem/autograd/record.h>
#include <tandem/core/check.h>
#include <tandem/core/fork.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/raw.h>

namespace tandem::inline v0::autograd {

namespace {

bool is_same(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined()) {
    return false;
  }
  const detail::View& x = a.raw();
  const detail::View& y = b.raw();
  return x.storage == y.storage && x.offset == y.offset && x.dtype == y.dtype && x.sizes == y.sizes &&
         x.strides == y.strides;
}

std::optional<std::uint32_t> place_of(const Tensor& tensor, const std::vector<Tensor>& among) {
  for (std::uint32_t i = 0; i < among.size(); ++i) {
    if (is_same(tensor, among[i])) {
      return i;
    }
  }
  return std::nullopt;
}

// Nodes hold names as pointers.
const char* lasting(const std::string& name) {
  static core::ForkSafeMutex mutex;
  static auto& names = *new std::unordered_set<std::string>;
  const std::lock_guard lock(mutex);
  return names.insert(name).first->c_str();
}

}  // namespace

class FunctionNode final : public Node {
 public:
  FunctionNode(const char* name, FunctionContext context, const std::vector<Tensor>& inputs,
               const std::vector<Tensor>& results, FunctionCall::Backward backward)
      : Node(name, static_cast<std::uint32_t>(results.size())),
        kept_(Kept{.context = std::move(context), .backward = std::move(backward), .values = {}}) {
    for (const Tensor& tensor : kept_->context.kept_) {
      kept_->values.push_back({tensor.defined() ? Saved(tensor) : Saved(), tensor.defined(), place_of(tensor, inputs),
                               place_of(tensor, results)});
    }
    kept_->context.kept_.clear();
    kept_->context.constants_.clear();
    has_graph_ = !kept_->context.is_once_differentiable_;
    connect(inputs);
  }

  void apply(Gradients& g) override {
    const std::vector<Tensor> gradients = run(g, [&](const Value& value) { return Tensor(value.saved.get(g)); });
    for (std::uint32_t i = 0; i < gradients.size(); ++i) {
      if (g.wants(i) && gradients[i].defined()) {
        g.deliver(i, gradients[i].raw(), is_only_here(gradients[i]));
      }
    }
  }
  bool has_graph() const noexcept override { return has_graph_; }
  void apply_graph(GradientGraph& g) override {
    const std::vector<Tensor> gradients = run(g, [&](const Value& value) {
      return value.input    ? g.input(*value.input, value.saved)
             : value.result ? g.result(value.saved, *value.result)
                            : g.constant(value.saved);
    });
    for (std::uint32_t i = 0; i < gradients.size(); ++i) {
      if (gradients[i].defined()) {
        g.give(i, gradients[i]);
      }
    }
  }
  void release() noexcept override { kept_.reset(); }
  bool released() const noexcept override { return !kept_.has_value(); }

 private:
  struct Value {
    Saved saved;
    bool is_defined;
    std::optional<std::uint32_t> input;   // which one it is
    std::optional<std::uint32_t> result;  // likewise
  };
  struct Kept {
    FunctionContext context;
    FunctionCall::Backward backward;
    std::vector<Value> values;
  };

  template <class AnyGradients, class ValueOf>
  std::vector<Tensor> run(AnyGradients& g, ValueOf&& value_of) {
    FunctionContext context = kept_->context;  // two passes at once have one each
    for (const Value& value : kept_->values) {
      context.values_.push_back(value.is_defined ? value_of(value) : Tensor());
    }
    std::vector<Tensor> given;
    for (std::uint32_t i = 0; i < num_outputs(); ++i) {
      const Output& out = output(i);
      given.push_back(is_there(g.output(i)) ? Tensor(g.output(i))
                                            : zeros(out.sizes, {.dtype = out.dtype, .device = out.device}));
    }
    for (std::uint32_t i = 0; i < num_edges(); ++i) {
      context.wanted_.push_back(g.wants(i));
    }
    std::vector<Tensor> gradients = kept_->backward(context, given);
    check<AutogradError>(gradients.size() == num_edges(),
                         "{}: backward() returned {} gradients, and apply() got {} tensors", op(), gradients.size(),
                         num_edges());
    for (std::uint32_t i = 0; i < num_edges(); ++i) {
      if (!gradients[i].defined() || !g.wants(i)) {
        continue;
      }
      const Output& input = edge(i).node->output(edge(i).output);
      const Tensor& gradient = gradients[i];
      check<ShapeError>(gradient.shape() == input.sizes,
                        "{}: backward() returned {} as the gradient of input {}, which is {}", op(), gradient.shape(),
                        i, input.sizes);
      check<DTypeError>(gradient.dtype() == input.dtype,
                        "{}: backward() returned {} as the gradient of input {}, which is {}", op(), gradient.dtype(),
                        i, input.dtype);
      check<DeviceError>(gradient.device() == input.device,
                         "{}: backward() returned a gradient on {} for input {}, which is on {}", op(),
                         gradient.device(), i, input.device);
    }
    return gradients;
  }

  // Whether nobody else has the elements, so that other gradients may be added to them.
  static bool is_only_here(const Tensor& tensor) {
    const detail::Storage& storage = *tensor.raw().storage;
    return tensor.unresolved()->is_unique() && storage.is_unique() && !storage.is_alias() && !storage.is_foreign();
  }

  static bool is_there(const detail::View& view) { return view.defined(); }
  static bool is_there(const Tensor& tensor) { return tensor.defined(); }

  std::optional<Kept> kept_;
  bool has_graph_ = true;
};

void FunctionContext::check_count(std::size_t count) const {
  check<AutogradError>(count == values_.size(),
                       "saved<{}>(): forward() has saved {} tensors; call it in backward(), for all of them", count,
                       values_.size());
}

std::vector<Tensor> FunctionCall::record(const std::string& name, FunctionContext context,
                                         const std::vector<Tensor>& inputs, const std::vector<Tensor>& results,
                                         Backward backward) {
  std::vector<Tensor> recorded;
  for (const Tensor& result : results) {
    check<AutogradError>(result.defined(), "{}: forward() returned an undefined tensor", name);
    recorded.emplace_back(result.raw());  // another handle: an input may be a result, too
  }
  const bool is_recorded = core::thread_state().grad_enabled && std::ranges::any_of(inputs, [](const Tensor& input) {
                             return input.defined() && records({&input});
                           });
  if (!is_recorded) {
    return recorded;
  }
  const std::vector<Tensor> constants = context.constants_;
  const core::Ref<Node> node(new FunctionNode(lasting(name), std::move(context), inputs, results, std::move(backward)));
  for (std::uint32_t i = 0; i < recorded.size(); ++i) {
    if (is_floating_point(recorded[i].dtype()) && !place_of(results[i], constants)) {
      set_history(recorded[i], node, i);
    } else {
      node->describe_output(i, recorded[i].raw());
    }
  }
  return recorded;
}

std::string FunctionCall::name_of(const char* type) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(type, nullptr, nullptr, &status),
                                                         &std::free);
  std::string name = status == 0 ? text.get() : type;
  const std::size_t arguments = name.find('<');
  const std::size_t scope = name.rfind("::", arguments);
  return scope == std::string::npos ? name : name.substr(scope + 2);
}

}  // namespace tandem::inline v0::autograd
