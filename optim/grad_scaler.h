#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>

#include <tandem/optim/optimizer.h>
#include <tandem/tensor/state_dict.h>

namespace tandem::inline v0::optim {

/// PyTorch's names and defaults.
struct GradScalerOptions {
  double init_scale = 65536;            // the first scale
  double growth_factor = 2;             // what it is multiplied with after growth_interval good steps in a row, > 1
  double backoff_factor = 0.5;          // what it is multiplied with after a step with an infinite gradient, < 1
  std::int64_t growth_interval = 2000;  // good steps between two growths
  bool enabled = true;                  // false: scale() and step() are as if there were no scaler
};

/// Keeps small gradients from vanishing in f16: the loss is scaled up, the gradients are scaled back, and a step whose
/// gradients overflowed is not taken (Micikevicius et al., "Mixed precision training", 2018; as torch.amp.GradScaler):
///
///     optimizer.zero_grad();
///     scaler.scale(loss).backward();
///     scaler.unscale_(optimizer);                       // only to look at gradients or clip them
///     optim::clip_grad_norm_(model.parameters(), 1.0);
///     scaler.step(optimizer);
///     scaler.update();                                  // once, after the steps of all optimizers
///
/// The scale and what is found lie on the device of the loss, and no step waits for them: the update itself leaves out
/// what it is told to. So a captured step may do all this. Only get_scale(), the state dicts, and a step in which other
/// parameters than before have gradients, read them. Losses and parameters must be on one device. Without unscale_,
/// gradients are scaled back within the update and stay scaled in memory. One thread at a time.
class TANDEM_API GradScaler {
 public:
  /// Throws ConfigError for options out of range.
  explicit GradScaler(const GradScalerOptions& options = {});
  GradScaler(const GradScaler&) = delete;  // captured steps refer to it
  GradScaler& operator=(const GradScaler&) = delete;

  /// loss * scale, through which gradients flow. A loss of 16 bits becomes f32. The first one says on which device this
  /// works; DeviceError for one on another.
  Tensor scale(const Tensor& loss);
  /// Divides the optimiser's gradients by the scale, in place and before its step, which then does not. Throws
  /// ConfigError when that was done since update(), or after the step; AutogradError when there are no gradients.
  void unscale_(Optimizer& optimizer);
  /// optimizer.step() with gradients divided by the scale, unless one of them is infinite or not a number: then nothing
  /// changes, and the step does not count. Throws ConfigError for a second step without update() in between,
  /// AutogradError when there are no gradients.
  void step(Optimizer& optimizer);
  /// The scale of the next steps: smaller when an optimiser found something infinite since the last update(), or
  /// larger after growth_interval updates without; or `new_scale`. Throws ConfigError when no optimiser looked.
  void update(std::optional<double> new_scale = std::nullopt);

  /// 1 unless enabled. Waits for the device.
  double get_scale() const;
  /// As in the options.
  bool is_enabled() const noexcept { return options_.enabled; }

  /// "scale", "growth_factor", "backoff_factor" (f64), "growth_interval", "_growth_tracker" (i64), as PyTorch; empty
  /// unless enabled.
  StateDict state_dict() const;
  /// All problems come in one ConfigError, and nothing is changed then. Does nothing unless enabled.
  void load_state_dict(const StateDict& state);

 private:
  enum class Stage : unsigned char { ready, unscaled, stepped };
  Stage stage_of(const Optimizer& optimizer) const;
  Stage enter(const char* call, const Optimizer& optimizer, Stage to);
  void check_scaled(const char* call) const;
  std::int64_t growth_tracker() const;

  std::shared_ptr<detail::Watched> watched_;  // by captured steps
  GradScalerOptions options_;
  std::int64_t init_growth_tracker_ = 0;
  Tensor scale_;                                        // f32, once there is a loss
  Tensor growth_tracker_;                               // i32
  Tensor found_inf_;                                    // f32, by any optimiser since update()
  std::unordered_map<const Optimizer*, Stage> stages_;  // since update(); ready if not in it
};

}  // namespace tandem::inline v0::optim
