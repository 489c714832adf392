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
#include <tandem/tensor/state_dict.h>
#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::autograd {
class BatchExchange;
}

namespace tandem::inline v0::nn {

namespace detail {
struct ModuleState;
/// Grows whenever any module registers anything. Code that caches a list of parameters compares versions to see whether
/// the list is current.
TANDEM_API std::uint64_t structure_version() noexcept;
}  // namespace detail

class ModuleRef;

namespace detail {
/// Makes each BatchNorm of the tree normalise batches of which others have parts, too; null: only its own.
TANDEM_API void set_batch_exchange(const ModuleRef& module, const std::shared_ptr<autograd::BatchExchange>& exchange);
ModuleState& state_of(const ModuleRef& module);
/// Whether a BatchNorm of the tree has an exchange.
TANDEM_API bool has_batch_exchange(const ModuleRef& module);
}  // namespace detail

/// Tensors by name: the saved form of a module.
using tandem::StateDict;

/// Names that a non-strict load skipped, and the prefix that any load removed.
struct LoadReport {
  std::vector<std::string> missing;     // in the module, not in the state
  std::vector<std::string> unexpected;  // in the state, not in the module
  std::string stripped;                 // prefix removed from every name ("module." of a model saved wrapped), or empty
};

/// Tensors with their names, in order.
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;
/// Modules with their names, in order.
using NamedModules = std::vector<std::pair<std::string, ModuleRef>>;

/// A module of a tree, as apply(), modules() and get_submodule() return it; every module is one, too. A light handle:
/// copies refer to the same module and keep its names and tensors alive. It gives no access to the C++ object, which
/// may have moved: use type_name() and parameters by name.
class TANDEM_API ModuleRef {
 public:
  /// The class without namespace and template arguments: "Linear".
  const std::string& type_name() const;
  /// The position in the tree: "encoder.0"; empty for a root.
  const std::string& path() const;
  /// The options as printed: "in_features=64, out_features=256, bias=true".
  const std::string& description() const;

  /// Each parameter once, in registration order: the module's own first, then (`recurse`) those of its children. A tied
  /// parameter appears where it comes first. Handles share the module's tensors.
  std::vector<Tensor> parameters(bool recurse = true) const;
  /// The parameters with their names relative to this module: "encoder.0.weight".
  NamedTensors named_parameters(bool recurse = true) const;
  /// Each buffer once, in registration order like parameters().
  std::vector<Tensor> buffers(bool recurse = true) const;
  /// The buffers with their names relative to this module.
  NamedTensors named_buffers(bool recurse = true) const;
  /// The parameter "weight", or "encoder.0.weight" of a module below. Throws ConfigError for an unknown name.
  Tensor get_parameter(std::string_view target) const;
  /// The buffer of that name, here or below. Throws ConfigError for an unknown name.
  Tensor get_buffer(std::string_view target) const;

  /// This module and all below, each before its children.
  std::vector<ModuleRef> modules() const;
  /// The modules with their names relative to this one: "", "encoder", "encoder.0".
  NamedModules named_modules() const;
  /// The modules directly below.
  std::vector<ModuleRef> children() const;
  /// The modules directly below, with their names.
  NamedModules named_children() const;
  /// The module "encoder.0" below, or this module for "". Throws ConfigError for an unknown name.
  ModuleRef get_submodule(std::string_view target) const;
  /// Calls fn with every module of the tree, children before their parent:
  /// `model.apply([](const nn::ModuleRef& m) { if (m.type_name() == "Linear") { ... m.get_parameter("weight") ... }
  /// });`
  void apply(const std::function<void(ModuleRef)>& fn) const;

  /// Number of elements of all parameters (or only of those that require a gradient). Tied parameters count once.
  std::int64_t num_parameters(bool trainable_only = false) const;
  /// Bytes of all parameters and buffers, without gradients. Tied parameters count once.
  std::int64_t num_bytes() const;

  /// Every parameter and buffer by name (a tied one under each of its names), without history. The tensors share memory
  /// with the module until the module moves: by to(), or when its first optimiser is built. clone() tensors that must
  /// not change. Where a DistributedDataParallel keeps parts of the parameters (shard = parameters), those are copies
  /// of the whole, and this is a collective: all ranks call it, and load_state_dict(), in the same order.
  StateDict state_dict() const;
  /// Copies values into this module. PyTorch's parallel wrappers put "module." before every name; that prefix is
  /// removed and reported. With `strict` the names must be exactly this module's. Otherwise missing and unexpected
  /// names are only reported, but at least one name must match. Shapes must always be equal, and dtypes too with
  /// `strict`. All problems come in one ConfigError, and then nothing is changed.
  LoadReport load_state_dict(const StateDict& state, bool strict = true);

  /// Sets training mode (dropout on) or evaluation mode for this module and all below.
  void train(bool on = true);
  /// Same as train(false).
  void eval() { train(false); }
  /// Whether the module is in training mode; a new module is.
  bool is_training() const;
  /// Freezes (false) or trains (true) all parameters here and below; see Tensor::requires_grad_. An optimiser skips
  /// frozen parameters but keeps their moments and step counts, and resumes with these once the parameters are trained
  /// again.
  void requires_grad_(bool on = true);

  /// Moves parameters, gradients and buffers. The tensors keep their identity: optimisers built before stay valid.
  void to(Device device);
  /// Converts floating point parameters, gradients and buffers.
  void to(DType dtype);
  /// Clears the gradients of all parameters; their memory is kept.
  void zero_grad();

 protected:
  friend detail::ModuleState& detail::state_of(const ModuleRef& module);
  /// Makes a handle to that module.
  explicit ModuleRef(std::shared_ptr<detail::ModuleState> state) noexcept : state_(std::move(state)) {}
  /// The state of the module. Throws ConfigError when the module was moved from.
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
