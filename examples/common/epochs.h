#pragma once

#include <fmt/format.h>

#include <tandem/data/loader.h>

#include "cli.h"

// The loop of samples that write no run folder.

namespace example {

/// Makes the epochs of `options`. `step(x, y)` trains on a batch and returns its loss; the last one of each epoch is
/// narrated, if `narrates`.
template <class Step>
void run_epochs(const PlainOptions& options, tandem::data::DataLoader& loader, bool narrates, const Step& step) {
  for (std::int64_t epoch = 0; epoch < options.epochs; ++epoch) {
    double last = 0;
    for (const auto& [x, y] : loader) {
      last = step(x, y).item();
    }
    if (narrates) {
      narrate(fmt::format("epoch {} of {}: loss {:.4f}", epoch + 1, options.epochs, last));
    }
  }
}

}  // namespace example
