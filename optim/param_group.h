#pragma once

#include <optional>
#include <utility>
#include <vector>

#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::optim {

/// Parameters with options of their own. Omitted options are the optimiser's:
/// `optim::SGD sgd({{.params = body.parameters()}, {.params = head.parameters(), .lr = 0.1}}, {.lr = 0.01});`
struct ParamGroup {
  std::vector<Tensor> params;                         // the group's parameters
  std::optional<double> lr = std::nullopt;            // learning rate; default: the optimiser's
  std::optional<double> weight_decay = std::nullopt;  // weight decay; default: the optimiser's
};

/// A group of a running optimiser. Its options may be changed between steps; a change takes effect at the next step.
/// All other options belong to the optimiser and are fixed.
class TANDEM_API Group {
 public:
  /// The options that may differ between groups.
  struct Options {
    double lr;                                        // learning rate
    double weight_decay;                              // weight decay
    std::optional<double> momentum = std::nullopt;    // none: the optimiser has no momentum
    std::optional<double> initial_lr = std::nullopt;  // none: no schedule was made yet
  };

  /// Called by optimisers. `optimizer` is the name in messages.
  Group(const char* optimizer, std::vector<Tensor> params, const Options& options)
      : optimizer_(optimizer), params_(std::move(params)), options_(options) {}
  Group(const Group&) = default;
  Group& operator=(const Group&) = delete;  // the parameters are the optimiser's

  /// The group's parameters, as given.
  const std::vector<Tensor>& params() const noexcept { return params_; }

  /// Learning rate of the next step.
  double lr() const noexcept { return options_.lr; }
  /// Throws ConfigError unless `lr` is finite and >= 0.
  void set_lr(double lr);

  /// Weight decay of the next step.
  double weight_decay() const noexcept { return options_.weight_decay; }
  /// Throws ConfigError unless `weight_decay` is finite and >= 0.
  void set_weight_decay(double weight_decay);

  /// Momentum of SGD and RMSprop, the first beta of Adam and AdamW; empty for other optimisers.
  std::optional<double> momentum() const noexcept { return options_.momentum; }
  /// Throws ConfigError unless `momentum` is in [0, 1), and for a change that would switch momentum on or off: an
  /// optimiser without momentum keeps no buffer for it.
  void set_momentum(double momentum);

  /// The rate that schedules start from: the rate when the first schedule was made. Later schedules start from it too,
  /// although the first has already changed lr().
  double initial_lr() const noexcept { return options_.initial_lr.value_or(options_.lr); }
  /// Called by each schedule: the first call fixes the present rate as the initial one.
  void fix_initial_lr() noexcept { options_.initial_lr = initial_lr(); }

  /// All options at once.
  const Options& options() const noexcept { return options_; }
  /// Sets all options at once. Throws ConfigError like the single setters, and then nothing is changed.
  void set_options(const Options& options);
  /// Throws the errors of set_options() without setting anything.
  void check_options(const Options& options) const;

 private:
  const char* optimizer_;
  std::vector<Tensor> params_;
  Options options_;
};

}  // namespace tandem::inline v0::optim
