#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>

#include <tandem/optim/optimizer.h>
#include <tandem/tensor/state_dict.h>

namespace tandem::inline v0::optim {

/// Options of GradScaler, with PyTorch's names and defaults.
struct GradScalerOptions {
  double init_scale = 65536;            // the first scale
  double growth_factor = 2;             // multiplies the scale after growth_interval good steps in a row; > 1
  double backoff_factor = 0.5;          // multiplies the scale after a step with a non-finite gradient; < 1
  std::int64_t growth_interval = 2000;  // good steps between two growths
  bool enabled = true;                  // false: scale() and step() act as if there were no scaler
};

/// Keeps small gradients from vanishing in f16. The loss is scaled up, the gradients are scaled back, and a step whose
/// gradients overflowed is skipped (Micikevicius et al., "Mixed precision training", 2018; like torch.amp.GradScaler):
///
///     optimizer.zero_grad();
///     scaler.scale(loss).backward();
///     scaler.unscale_(optimizer);                       // only to look at gradients or clip them
///     optim::clip_grad_norm_(model.parameters(), 1.0);
///     scaler.step(optimizer);
///     scaler.update();                                  // once, after the steps of all optimisers
///
/// The scale and the overflow flag live on the device of the loss, and no step waits for them: the update kernel itself
/// skips the step. A captured step may therefore do all of this. Only get_scale(), the state dicts, and a step in which
/// other parameters than before have gradients, read the values back. Losses and parameters must be on one device.
/// Without unscale_, gradients are scaled back within the update and stay scaled in memory. Belongs to one thread at a
/// time.
class TANDEM_API GradScaler {
 public:
  /// Throws ConfigError for options out of range.
  explicit GradScaler(const GradScalerOptions& options = {});
  GradScaler(const GradScaler&) = delete;  // captured steps refer to the scaler
  GradScaler& operator=(const GradScaler&) = delete;

  /// Returns loss * scale, through which gradients flow. A 16-bit loss becomes f32. The first loss fixes the scaler's
  /// device; DeviceError for a loss on another.
  Tensor scale(const Tensor& loss);
  /// Divides the optimiser's gradients by the scale in place; call it before step(), which then does not divide. Throws
  /// ConfigError for a second call since update() and for a call after the step; AutogradError when there are no
  /// gradients.
  void unscale_(Optimizer& optimizer);
  /// Calls optimizer.step() with gradients divided by the scale. If a gradient is infinite or NaN, nothing changes and
  /// the step does not count. Needs a scaled loss before, unless this rank has a part of a pipeline or
  /// load_state_dict() was called. Throws ConfigError for a second step without update() in between, AutogradError when
  /// there are no gradients or no loss was scaled.
  void step(Optimizer& optimizer);
  /// Sets the scale of the next steps: `new_scale` if given; smaller if an optimiser found a non-finite gradient since
  /// the last update(); larger after growth_interval updates without one. Throws ConfigError when no optimiser has
  /// checked its gradients.
  void update(std::optional<double> new_scale = std::nullopt);

  /// The current scale, or 1 unless enabled. Waits for the device.
  double get_scale() const;
  /// The option `enabled`.
  bool is_enabled() const noexcept { return options_.enabled; }

  /// The state under PyTorch's names: "scale", "growth_factor", "backoff_factor" (f64), "growth_interval",
  /// "_growth_tracker" (i64). Empty unless enabled.
  StateDict state_dict() const;
  /// Restores a state_dict(). All problems come in one ConfigError, and then nothing is changed. Does nothing unless
  /// enabled.
  void load_state_dict(const StateDict& state);

 private:
  enum class Stage : unsigned char { ready, unscaled, stepped };
  Stage stage_of(const Optimizer& optimizer) const;
  Stage enter(const char* call, const Optimizer& optimizer, Stage to);
  void make_state(Device device);
  void begin(const char* call, Optimizer& optimizer);
  void check_scaled(const char* call) const;
  std::int64_t growth_tracker() const;
  float* scale_data() const;

  std::shared_ptr<detail::Watched> watched_;  // watched by captured steps
  GradScalerOptions options_;
  std::int64_t init_growth_tracker_ = 0;
  bool is_loaded_ = false;
  Tensor scale_;                                        // f32; undefined before the first loss
  Tensor growth_tracker_;                               // i32
  Tensor found_inf_;                                    // f32; set by any optimiser since update()
  std::unordered_map<const Optimizer*, Stage> stages_;  // since update(); an optimiser not listed is ready
};

}  // namespace tandem::inline v0::optim
