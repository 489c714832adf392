#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include <tandem/autograd/parameter.h>
#include <tandem/nn/state_dict.h>
#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::nn {

namespace detail {
struct ModuleState;
}

/// Tensors with their names, in order.
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

/// What all modules are: a named tree of parameters, buffers and children. Move-only: a copy would silently tie
/// weights. Derive from Module<YourType>, not from this.
class TANDEM_API ModuleBase {
 public:
  ModuleBase(ModuleBase&&) noexcept;
  /// Throws ConfigError for a registered child: its parent would go on with the old one.
  ModuleBase& operator=(ModuleBase&& other);
  ModuleBase(const ModuleBase&) = delete;
  ModuleBase& operator=(const ModuleBase&) = delete;
  ~ModuleBase();

  /// "Linear"; and where it is in its tree: "encoder.0", empty for a root.
  const std::string& type_name() const;
  /// Where it is in its tree: "encoder.0"; empty for a root.
  const std::string& path() const;

  /// Each parameter once, in registration order: own ones first, then those of the children (tied ones where they
  /// come first). Handles share the module's tensors.
  std::vector<Tensor> parameters() const;
  /// The same with their names: "encoder.0.weight".
  NamedTensors named_parameters() const;
  /// Each buffer once, in the same order.
  std::vector<Tensor> buffers() const;
  /// The same with their names.
  NamedTensors named_buffers() const;

  /// Every parameter and buffer by name (tied ones under each name), without history. Shares memory with the module
  /// until that moves: by to(), or by the first optimiser built of its parameters. clone() what should stay as it is.
  StateDict state_dict() const;
  /// Copies values into this module. Strict: the names must be exactly this module's. Otherwise what is missing or
  /// unexpected is only reported, but at least one name must match. Shapes and (strict) dtypes must always be equal.
  /// All problems come in one ConfigError, and nothing is changed then.
  LoadReport load_state_dict(const StateDict& state, bool strict = true);

  /// Training mode (dropout on) or evaluation, for this module and all below.
  void train(bool on = true);
  /// train(false).
  void eval() { train(false); }
  /// Whether it is in training mode; a new module is.
  bool is_training() const;

  /// Moves parameters, gradients and buffers, keeping their identity: optimisers built before stay valid.
  void to(Device device);
  /// Converts floating point parameters, gradients and buffers.
  void to(DType dtype);
  /// Forgets the gradients of all parameters; their memory is kept.
  void zero_grad();

 protected:
  explicit ModuleBase(const std::type_info& type);

  /// Registers under `name` and hands back, for members: `Parameter weight = parameter("weight", rand({3, 4}));`.
  /// Names must be unique in a module and hold no dot (ConfigError).
  Parameter parameter(const std::string& name, Tensor value);
  /// The same for state that is not trained.
  Buffer buffer(const std::string& name, Tensor value);
  /// For members: `nn::Linear fc1 = child("fc1", nn::Linear(64, 256));`.
  template <class M>
  M child(const std::string& name, M module) {
    adopt(name, module);
    return module;
  }
  /// Registers a child that lives elsewhere, as child() does.
  void adopt(const std::string& name, ModuleBase& module);
  /// Makes `slot` (a parameter of this module or below) the same tensor as `other`; shapes must be equal.
  void tie(Parameter& slot, const Parameter& other);

  /// Opens the module's scope: from here on messages name it. Throws ConfigError when a module with parameters is
  /// called inside another one without being registered anywhere: its parameters would not be trained.
  class TANDEM_API CallScope {
   public:
    explicit CallScope(const ModuleBase& module);
    ~CallScope() { core::thread_state().scope = scope_.parent; }
    CallScope(const CallScope&) = delete;
    CallScope& operator=(const CallScope&) = delete;

   private:
    core::ModuleScope scope_;
  };

 private:
  template <class Convert>
  void convert(Convert&& wanted);
  detail::ModuleState& live_state() const;

  std::shared_ptr<detail::ModuleState> state_;
};

/// Base of every layer and model: `struct Mlp : nn::Module<Mlp> { ...; Tensor forward(const Tensor& x) const; };`.
/// Calling the module opens its scope and calls forward, which may have any signature and is const.
template <class Derived>
class Module : public ModuleBase {
 public:
  /// forward(args...) within this module's scope.
  template <class... Args>
  decltype(auto) operator()(Args&&... args) const {
    const CallScope scope(*this);
    return static_cast<const Derived&>(*this).forward(std::forward<Args>(args)...);
  }

 protected:
  Module() : ModuleBase(typeid(Derived)) {}
};

}  // namespace tandem::inline v0::nn
