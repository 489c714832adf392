#pragma once

#include <concepts>
#include <memory>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include <tandem/autograd/parameter.h>
#include <tandem/core/span.h>
#include <tandem/nn/module_ref.h>
#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::nn {

template <class Derived>
class Module;

namespace detail {
// The type that a module names as Derived. Declared only.
template <class Derived>
const Derived* named_by(const Module<Derived>* module);
}  // namespace detail

/// A module that passes its own type to Module, such as `struct Net : nn::Module<Net>`, or a class derived from one.
/// `struct A : nn::Module<B>` does not qualify: calling it would run B::forward on an object that is no B. Children
/// must qualify.
template <class M>
concept OwnModule = requires(const M* module) {
  { module } -> std::convertible_to<decltype(detail::named_by(module))>;
};

/// Base of all modules: a named tree of parameters, buffers and children. Move-only, because a copy would silently tie
/// weights. Derive from Module<YourType>, not from this class.
class TANDEM_API ModuleBase : public ModuleRef {
 public:
  ModuleBase(ModuleBase&&) noexcept;
  /// Replaces a registered child in its tree: `model.head = nn::Linear(512, 10)`. Optimisers built before the
  /// assignment keep the old parameters. Throws ConfigError when `other` is itself a child, or the root of this
  /// module's tree.
  ModuleBase& operator=(ModuleBase&& other);
  ModuleBase(const ModuleBase&) = delete;  // a module is not copied: std::move() it, or load_state_dict() into another
  ModuleBase& operator=(const ModuleBase&) = delete;

  /// Whether the module is in training mode; a new module is. Throws ConfigError when the module is called within
  /// another but registered nowhere, so that train() and eval() do not reach it.
  bool is_training() const;

 protected:
  explicit ModuleBase(const std::type_info& type);
  ~ModuleBase();  // not virtual: a module is deleted through its own type

  /// Registers `value` under `name` and returns it, for members: `Parameter bias = parameter("bias", zeros({3}));`.
  /// Names must be unique within a module and contain no dot (ConfigError).
  Parameter parameter(const std::string& name, Tensor value);
  /// Registers a tensor that is state but not trained.
  Buffer buffer(const std::string& name, Tensor value);
  /// Registers a child and returns it, for members: `nn::Linear fc1 = child("fc1", nn::Linear(64, 256));`.
  template <class M>
  std::remove_cvref_t<M> child(const std::string& name, M&& module) {
    static_assert(OwnModule<std::remove_cvref_t<M>>,
                  "a module derives from nn::Module of itself: struct Net : nn::Module<Net>");
    static_assert(
        std::same_as<M, std::remove_cvref_t<M>>,
        "a module is moved in, not copied: child(\"fc1\", std::move(fc1)), or child(\"fc1\", nn::Linear(64, 256))");
    adopt(name, module);
    return std::move(module);
  }
  /// Registers a child that lives elsewhere, in the same way as child().
  void adopt(const std::string& name, ModuleBase& module);
  /// Makes `slot` (a parameter of this module or below) the same tensor as `other`; shapes must be equal.
  void tie(Parameter& slot, const Parameter& other);
  /// Sets the options to print, in the constructor: describe("p=0.5").
  void describe(std::string options);

  /// Throws ConfigError when this module has parameters to train and is called within another module that it is not
  /// registered in: the parameters would not be trained. operator() checks this. A forward() may check it too, for
  /// callers that bypass operator().
  void check_registered() const;

  /// Opens the module's scope: until it closes, messages name the module. Throws like check_registered().
  class TANDEM_API CallScope {
   public:
    explicit CallScope(const ModuleBase& module);
    ~CallScope() { core::thread_state().scope = scope_.parent; }
    CallScope(const CallScope&) = delete;
    CallScope& operator=(const CallScope&) = delete;

   private:
    core::ModuleScope scope_;
  };
};

/// Base of every layer and model: `struct Mlp : nn::Module<Mlp> { ...; Tensor forward(const Tensor& x) const; };`.
/// Calling the module opens its scope and calls forward, which may have any signature and is const. A module without
/// constructors is made with `Mlp model{}` or `Mlp model`.
template <class Derived>
class Module : public ModuleBase {
 public:
  // Public, because the code that initialises an aggregate constructs its base.
  Module() : ModuleBase(typeid(Derived)) {
    static_assert(OwnModule<Derived>, "a module derives from nn::Module of itself: struct Net : nn::Module<Net>");
  }

  /// forward(args...) within this module's scope.
  template <class... Args>
  decltype(auto) operator()(Args&&... args) const {
    constexpr bool takes = requires { std::declval<const Derived&>().forward(std::declval<Args>()...); };
    constexpr bool takes_if_changeable = requires { std::declval<Derived&>().forward(std::declval<Args>()...); };
    static_assert(takes || !takes_if_changeable, "forward() must be const: Tensor forward(const Tensor& x) const");
    static_assert(takes || takes_if_changeable, "the module has no forward() that takes these arguments");
    const CallScope scope(*this);
    const SpanScope timed(Phase::forward);
    return static_cast<const Derived&>(*this).forward(std::forward<Args>(args)...);
  }
};

}  // namespace tandem::inline v0::nn
