#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tandem/core/device.h>
#include <tandem/nn/state_dict.h>
#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::nn {

namespace detail {
struct ModuleState;
/// Grows whenever any module registers something: who keeps a list of parameters looks whether it is still the list.
TANDEM_API std::uint64_t structure_version() noexcept;
}  // namespace detail

class ModuleRef;

/// Tensors with their names, in order.
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;
/// Modules with their names, in order.
using NamedModules = std::vector<std::pair<std::string, ModuleRef>>;

/// A module of a tree: what apply(), modules() and get_submodule() hand out, and what every module is as well. A light
/// handle; copies mean the same module, and keep its names and tensors alive. It does not lead to the C++ object, which
/// may have moved: ask for type_name() and for parameters by name.
class TANDEM_API ModuleRef {
 public:
  /// Its class without namespace and template arguments: "Linear".
  const std::string& type_name() const;
  /// Where it is in its tree: "encoder.0"; empty for a root.
  const std::string& path() const;
  /// Its options as they are printed: "in_features=64, out_features=256, bias=true".
  const std::string& description() const;

  /// Each parameter once, in registration order: own ones first, then (`recurse`) those of the children (tied ones
  /// where they come first). Handles share the module's tensors.
  std::vector<Tensor> parameters(bool recurse = true) const;
  /// The same with their names, as seen from here: "encoder.0.weight".
  NamedTensors named_parameters(bool recurse = true) const;
  /// Each buffer once, in the same order.
  std::vector<Tensor> buffers(bool recurse = true) const;
  /// The same with their names.
  NamedTensors named_buffers(bool recurse = true) const;
  /// The parameter "weight", or "encoder.0.weight" below. Throws ConfigError when there is none.
  Tensor get_parameter(std::string_view target) const;
  /// The same for a buffer.
  Tensor get_buffer(std::string_view target) const;

  /// Itself and all below: each module before its children.
  std::vector<ModuleRef> modules() const;
  /// The same with their names, as seen from here: "", "encoder", "encoder.0".
  NamedModules named_modules() const;
  /// Those directly below.
  std::vector<ModuleRef> children() const;
  /// The same with their names.
  NamedModules named_children() const;
  /// The module "encoder.0" below; itself for "". Throws ConfigError when there is none.
  ModuleRef get_submodule(std::string_view target) const;
  /// Calls fn with every module of the tree, children before their parent:
  /// `model.apply([](const nn::ModuleRef& m) { if (m.type_name() == "Linear") { ... m.get_parameter("weight") ... }
  /// });`
  void apply(const std::function<void(ModuleRef)>& fn) const;

  /// Number of elements of all parameters (or only of those that require a gradient); tied ones count once.
  std::int64_t num_parameters(bool trainable_only = false) const;
  /// Bytes of all parameters and buffers, without gradients; tied ones count once.
  std::int64_t num_bytes() const;

  /// Every parameter and buffer by name (tied ones under each name), without history. Shares memory with the module
  /// until that moves: by to(), or by the first optimiser built of its parameters. clone() what should stay as it is.
  StateDict state_dict() const;
  /// Copies values into this module. The prefix "module." that PyTorch's parallel wrappers put before every name is
  /// taken off, and reported. Strict: the names must be exactly this module's. Otherwise what is missing or
  /// unexpected is only reported, but at least one name must match. Shapes and (strict) dtypes must always be equal.
  /// All problems come in one ConfigError, and nothing is changed then.
  LoadReport load_state_dict(const StateDict& state, bool strict = true);

  /// Training mode (dropout on) or evaluation, for this module and all below.
  void train(bool on = true);
  /// train(false).
  void eval() { train(false); }
  /// Whether it is in training mode; a new module is.
  bool is_training() const;
  /// Freezes (false) or trains (true) all parameters here and below; see Tensor::requires_grad_. An optimiser passes
  /// over frozen ones, and goes on with them, their moments and step counts kept, once they are trained again.
  void requires_grad_(bool on = true);

  /// Moves parameters, gradients and buffers, keeping their identity: optimisers built before stay valid.
  void to(Device device);
  /// Converts floating point parameters, gradients and buffers.
  void to(DType dtype);
  /// Forgets the gradients of all parameters; their memory is kept.
  void zero_grad();

 protected:
  /// A handle to that module.
  explicit ModuleRef(std::shared_ptr<detail::ModuleState> state) noexcept : state_(std::move(state)) {}
  /// The module; throws ConfigError when it was moved from.
  detail::ModuleState& live_state() const;

  /// Null after a move.
  std::shared_ptr<detail::ModuleState> state_;

 private:
  template <class Convert>
  void convert(Convert&& wanted);
};

/// The tree as PyTorch prints it: a line for each module, with its name, type and options.
TANDEM_API std::ostream& operator<<(std::ostream& out, const ModuleRef& module);

}  // namespace tandem::inline v0::nn
