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

/// Options of EMA.
struct EMAOptions {
  double decay = 0.999;  // share of the average that an update keeps
};

/// An exponential moving average of the trained weights (Polyak and Juditsky, 1992; like PyTorch's AveragedModel with
/// an EMA): average = decay * average + (1 - decay) * parameter. The first update copies.
///
///     optim::EMA ema(model.parameters());
///     ...  sgd.step();  ema.update();  ...
///     {
///       const optim::EMA::Scope averaged(ema);  // the model computes with the averages in here
///       evaluate(model);
///     }
///
/// The averages follow the parameters to another device or dtype. Belongs to one thread at a time.
class TANDEM_API EMA {
 public:
  /// Takes parameters (and floating point buffers). The averages start as their present values. Throws ConfigError for
  /// an empty list, for undefined, repeated or non-floating-point tensors, and unless decay is in [0, 1].
  explicit EMA(const std::vector<Tensor>& parameters, const EMAOptions& options = {});
  EMA(const EMA&) = delete;  // a Scope refers to it
  EMA& operator=(const EMA&) = delete;

  /// Call after each step of the optimiser. Throws ConfigError within a Scope, where the parameters hold the averages.
  void update();
  /// Calls of update() so far.
  std::int64_t num_updates() const noexcept { return num_updates_; }
  /// The averages, in the order of the parameters. The next update changes them.
  const std::vector<Tensor>& averages() const noexcept { return averages_; }

  /// Copies, under the names "n_averaged" (i64) and "average.<index>".
  StateDict state_dict() const;
  /// Restores a state_dict(). All problems come in one ConfigError, and then nothing is changed.
  void load_state_dict(const StateDict& state);

  /// During its lifetime the parameters have the averages' values. Its end restores their own values, to the bit, and
  /// discards anything written to them in between. Do not open or close a Scope between a forward pass and its backward
  /// pass: it changes the values that the forward pass saved. Scopes do not nest (ConfigError).
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

  std::shared_ptr<detail::Watched> watched_;  // watched by captured steps
  std::vector<Tensor> parameters_;
  std::vector<Tensor> averages_;
  double decay_;
  std::int64_t num_updates_ = 0;
  bool applied_ = false;
};

}  // namespace tandem::inline v0::optim
