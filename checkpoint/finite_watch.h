#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <tandem/autograd/anomaly_notes.h>
#include <tandem/checkpoint/run_parts.h>

// Internal: stops a run at the first step that is not finite, and finds the layer when that step comes again.

namespace tandem::inline v0::checkpoint {

/// One rank's watch.
class FiniteWatch {
 public:
  /// Without `enabled` nothing is looked at. `suspect` is the step at which an earlier process stopped; -1: none.
  FiniteWatch(bool enabled, std::int64_t suspect) : enabled_(enabled), suspect_(suspect) {}

  /// The step in the file, or -1.
  static std::int64_t read_suspect(const std::string& path);
  static void write_suspect(const std::string& path, std::int64_t step);

  /// `step` has ended. Looks at all results of the next one if that is the suspect. Returns whether `step` was the
  /// suspect, and is cleared of it.
  bool after(std::int64_t step);
  /// A text that names the gradient or loss that is not finite in the last step: "a gradient is not finite, first that
  /// of ...". Empty: all are finite. Without `waits`, gradients on GPUs and a loss there, for which the host would have
  /// to wait, are not looked at.
  std::string what_is_wrong(const RunParts& parts, const Tensor* loss, bool waits) const;

 private:
  bool enabled_;
  std::int64_t suspect_;
  std::optional<autograd::AnomalyNotes> watch_{};
};

}  // namespace tandem::inline v0::checkpoint
