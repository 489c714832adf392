#pragma once

#include <optional>
#include <utility>
#include <vector>

#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::optim {

/// Parameters with options of their own; what is left out is as in the optimiser's options:
/// `optim::SGD sgd({{.params = body.parameters()}, {.params = head.parameters(), .lr = 0.1}}, {.lr = 0.01});`
struct ParamGroup {
  std::vector<Tensor> params;                         // the group's parameters
  std::optional<double> lr = std::nullopt;            // learning rate; the optimiser's where none is given
  std::optional<double> weight_decay = std::nullopt;  // weight decay; the optimiser's where none is given
};

/// A group of an optimiser at work: what may be changed between steps, and takes effect at the next one. All other
/// options are the optimiser's and stay.
class TANDEM_API Group {
 public:
  /// What may differ between groups.
  struct Options {
    double lr;                                        // learning rate
    double weight_decay;                              // weight decay
    std::optional<double> momentum = std::nullopt;    // none: the optimiser has no such option
    std::optional<double> initial_lr = std::nullopt;  // none: no schedule was made yet
  };

  /// For optimisers. `optimizer` is the name that messages use.
  Group(const char* optimizer, std::vector<Tensor> params, const Options& options)
      : optimizer_(optimizer), params_(std::move(params)), options_(options) {}
  Group(const Group&) = default;
  Group& operator=(const Group&) = delete;  // its parameters are the optimiser's

  /// The group's parameters, as given.
  const std::vector<Tensor>& params() const noexcept { return params_; }

  /// Learning rate of the next step.
  double lr() const noexcept { return options_.lr; }
  /// Throws ConfigError unless finite and >= 0.
  void set_lr(double lr);

  /// Weight decay of the next step.
  double weight_decay() const noexcept { return options_.weight_decay; }
  /// Throws ConfigError unless finite and >= 0.
  void set_weight_decay(double weight_decay);

  /// Momentum of SGD and RMSprop, the first of the betas of Adam and AdamW; empty for others.
  std::optional<double> momentum() const noexcept { return options_.momentum; }
  /// Throws ConfigError unless in [0, 1), and where it would switch momentum on or off: an optimiser without momentum
  /// keeps no buffer for it.
  void set_momentum(double momentum);

  /// What schedules start from: the rate when the first of them was made. Further ones find the same, though the first
  /// has changed lr() already.
  double initial_lr() const noexcept { return options_.initial_lr.value_or(options_.lr); }
  /// The first schedule takes the present rate as the initial one.
  void fix_initial_lr() noexcept { options_.initial_lr = initial_lr(); }

  /// All at once. Throws ConfigError as the setters do; nothing is changed then.
  const Options& options() const noexcept { return options_; }
  /// All at once, checked.
  void set_options(const Options& options);
  /// Throws what set_options would throw.
  void check_options(const Options& options) const;

 private:
  const char* optimizer_;
  std::vector<Tensor> params_;
  Options options_;
};

}  // namespace tandem::inline v0::optim
