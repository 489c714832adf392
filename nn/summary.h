#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include <tandem/nn/module_ref.h>

namespace tandem::inline v0::nn {

/// One module of a summary. Tied parameters count where they come first.
struct SummaryRow {
  std::string name;                   // "encoder.0"; empty for the model itself
  std::string type;                   // "Linear"
  std::string parameters;             // its own: "weight [256, 64], bias [256]"
  std::int64_t num_parameters;        // their elements
  std::int64_t trainable_parameters;  // those that require a gradient
};

/// What a model consists of.
struct Summary {
  std::vector<SummaryRow> rows;           // each module before its children
  std::int64_t num_parameters = 0;        // elements of all parameters
  std::int64_t trainable_parameters = 0;  // of those that require a gradient
  std::int64_t num_bytes = 0;             // of all parameters and buffers, without gradients
};

/// Takes stock of a model: `std::cout << nn::summary(model)` prints it as a table.
TANDEM_API Summary summary(const ModuleRef& module);

/// A table that fits into 100 columns: long names lose their beginning, long types and lists of parameters their end.
TANDEM_API std::ostream& operator<<(std::ostream& out, const Summary& summary);

}  // namespace tandem::inline v0::nn
