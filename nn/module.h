#pragma once

#include <concepts>
#include <memory>
#include <string>
#include <typeinfo>
#include <utility>

#include <tandem/autograd/parameter.h>
#include <tandem/core/step_times.h>
#include <tandem/nn/module_ref.h>
#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::nn {

template <class Derived>
class Module;

namespace detail {
// The type that a module says it is. Declared only.
template <class Derived>
const Derived* named_by(const Module<Derived>* module);
}  // namespace detail

/// A module that is what it says: `struct Net : nn::Module<Net>`, or what derives from one. `struct A : nn::Module<B>`
/// is not: calling it would run B::forward on something that is no B. Children must be such ones.
template <class M>
concept OwnModule = requires(const M* module) {
  { module } -> std::convertible_to<decltype(detail::named_by(module))>;
};

/// What all modules are: a named tree of parameters, buffers and children. Move-only: a copy would silently tie
/// weights. Derive from Module<YourType>, not from this.
class TANDEM_API ModuleBase : public ModuleRef {
 public:
  ModuleBase(ModuleBase&&) noexcept;
  /// A registered child is replaced in its tree: `model.head = nn::Linear(512, 10)`. Optimisers built before go on with
  /// the old parameters. Throws ConfigError when `other` is a child itself.
  ModuleBase& operator=(ModuleBase&& other);
  ModuleBase(const ModuleBase&) = delete;
  ModuleBase& operator=(const ModuleBase&) = delete;

  /// Whether it is in training mode; a new module is. Throws ConfigError in the call of a module that train() and
  /// eval() do not reach, because it is registered nowhere.
  bool is_training() const;

 protected:
  explicit ModuleBase(const std::type_info& type);
  ~ModuleBase();  // not virtual: a module is deleted as what it is

  /// Registers under `name` and hands back, for members: `Parameter weight = parameter("weight", rand({3, 4}));`.
  /// Names must be unique in a module and hold no dot (ConfigError).
  Parameter parameter(const std::string& name, Tensor value);
  /// The same for state that is not trained.
  Buffer buffer(const std::string& name, Tensor value);
  /// For members: `nn::Linear fc1 = child("fc1", nn::Linear(64, 256));`.
  template <class M>
  M child(const std::string& name, M module) {
    static_assert(OwnModule<M>, "a module derives from nn::Module of itself: struct Net : nn::Module<Net>");
    adopt(name, module);
    return module;
  }
  /// Registers a child that lives elsewhere, as child() does.
  void adopt(const std::string& name, ModuleBase& module);
  /// Makes `slot` (a parameter of this module or below) the same tensor as `other`; shapes must be equal.
  void tie(Parameter& slot, const Parameter& other);
  /// The options as they are to be printed, for the constructor: describe("p=0.5").
  void describe(std::string options);

  /// Throws ConfigError when this module has parameters to train and is called within another one without being part
  /// of its tree: they would not be trained. operator() checks it; a forward() may, for those who call that.
  void check_registered() const;

  /// Opens the module's scope: from here on messages name it. Throws as check_registered().
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
/// Calling the module opens its scope and calls forward, which may have any signature and is const. Without
/// constructors of its own it is made with braces, `Mlp model{}`, or without.
template <class Derived>
class Module : public ModuleBase {
 public:
  // Public, for an aggregate's base is made by whoever writes the braces.
  Module() : ModuleBase(typeid(Derived)) {
    static_assert(OwnModule<Derived>, "a module derives from nn::Module of itself: struct Net : nn::Module<Net>");
  }

  /// forward(args...) within this module's scope.
  template <class... Args>
  decltype(auto) operator()(Args&&... args) const {
    const CallScope scope(*this);
    const PhaseScope timed(Phase::forward);
    return static_cast<const Derived&>(*this).forward(std::forward<Args>(args)...);
  }
};

}  // namespace tandem::inline v0::nn
