#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <tandem/tensor/state_dict.h>
#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::detail {
class Watched;
}

namespace tandem::inline v0::optim {

/// How fast the average follows.
struct EMAOptions {
  double decay = 0.999;  // part of the average that an update keeps
};

/// An exponential moving average of weights, beside those that are trained (Polyak and Juditsky, 1992; as PyTorch's
/// AveragedModel with an EMA): average = decay * average + (1 - decay) * parameter; the first update copies.
///
///     optim::EMA ema(model.parameters());
///     ...  sgd.step();  ema.update();  ...
///     {
///       const optim::EMA::Scope averaged(ema);  // the model computes with the averages in here
///       evaluate(model);
///     }
///
/// The averages follow the parameters to another device or dtype. One thread at a time.
class TANDEM_API EMA {
 public:
  /// Parameters (and floating point buffers) whose averages begin as their present values. Throws ConfigError for an
  /// empty list, undefined or repeated tensors, those that are not floating point, and unless decay is in [0, 1].
  explicit EMA(const std::vector<Tensor>& parameters, const EMAOptions& options = {});
  EMA(const EMA&) = delete;  // a Scope refers to it
  EMA& operator=(const EMA&) = delete;

  /// After each step of the optimiser. Throws ConfigError within a Scope, where the parameters are the averages.
  void update();
  /// Calls of update() so far.
  std::int64_t num_updates() const noexcept { return num_updates_; }
  /// In the order of the parameters; the next update changes them.
  const std::vector<Tensor>& averages() const noexcept { return averages_; }

  /// "n_averaged" (i64) and "average.<index>", copies.
  StateDict state_dict() const;
  /// All problems come in one ConfigError, and nothing is changed then.
  void load_state_dict(const StateDict& state);

  /// The parameters have the averages' values while it lives, and then their own again, to the bit; what is written
  /// into them meanwhile is lost. Not between a forward pass and its backward pass: the values that it saved change.
  /// Scopes do not nest (ConfigError).
  class TANDEM_API Scope {
   public:
    [[nodiscard]] explicit Scope(EMA& ema);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    EMA& ema_;
    std::vector<Tensor> own_;
  };

 private:
  void add_to_averages();

  std::shared_ptr<detail::Watched> watched_;  // by captured steps
  std::vector<Tensor> parameters_;
  std::vector<Tensor> averages_;
  double decay_;
  std::int64_t num_updates_ = 0;
  bool applied_ = false;
};

}  // namespace tandem::inline v0::optim
