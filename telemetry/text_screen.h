#pragma once

#include <string>

#include <tandem/core/export.h>

namespace tandem::inline v0::telemetry {

/// A screen of a terminal.
struct ScreenSize {
  int columns = 80;         ///< characters of a line
  int rows = 24;            ///< lines
  bool has_unicode = true;  ///< false: curves of '*' in place of Braille patterns
};

/// The state of a run by its folder, in at most that many lines of at most that many columns, each ended by '\n': the
/// last numbers, curves, options, and the first line of advice. Only reads. Throws IoError where no run's folder is.
TANDEM_API std::string text_screen(const std::string& folder, const ScreenSize& size);

}  // namespace tandem::inline v0::telemetry
