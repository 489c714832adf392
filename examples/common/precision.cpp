#include "precision.h"

#include <fmt/format.h>

namespace example {

using namespace tandem;

void add_precision(CLI::App& app, std::string& precision) {
  add_choice(app, "--precision", "f32; bf16 or f16: products in 16 bits, parameters in f32; f16 scales the loss",
             precision, {"f32", "bf16", "f16"});
}

Precision::Precision(const std::string& name)
    : dtype_(name == "f16" ? DType::f16 : DType::bf16),
      is_lowered_(name != "f32"),
      scaler_({.enabled = name == "f16"}),
      scale_(scaler_.get_scale()) {}

AutocastScope Precision::autocast() const { return AutocastScope(dtype_, {.enabled = is_lowered_}); }

void Precision::step(optim::Optimizer& optimizer) {
  scaler_.step(optimizer);
  scaler_.update();
}

void Precision::track(checkpoint::Run& run) {
  if (scaler_.is_enabled()) {
    run.track(scaler_);
    run.track("scaled_steps", steps_);
    run.track("skipped_steps", skipped_);
    scale_ = scaler_.get_scale();
  }
}

void Precision::note_step() {
  if (scaler_.is_enabled()) {
    const double before = scale_;
    scale_ = scaler_.get_scale();
    ++steps_;
    skipped_ += scale_ < before ? 1 : 0;  // the scale falls after an overflow, and only then
  }
}

void Precision::show(telemetry::Progress& progress) const {
  if (scaler_.is_enabled()) {
    progress.set("skipped steps", fmt::format("{}", skipped_));
  }
}

telemetry::Fields Precision::fields() const {
  return scaler_.is_enabled() ? telemetry::Fields{{"loss_scale", scale_}, {"skipped_steps", skipped_}}
                              : telemetry::Fields();
}

std::string Precision::summary() const {
  return scaler_.is_enabled() ? fmt::format("loss scale {:g}; {} of {} steps left out", scale_, skipped_, steps_)
                              : std::string();
}

}  // namespace example
