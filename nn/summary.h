#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include <tandem/nn/module_ref.h>

namespace tandem::inline v0::nn {

/// One module of a summary. Tied parameters count in the first module that has them.
struct SummaryRow {
  std::string name;                   // "encoder.0"; empty for the model itself
  std::string type;                   // "Linear"
  std::string parameters;             // the module's own: "weight [256, 64], bias [256]"
  std::int64_t num_parameters;        // number of elements of these parameters
  std::int64_t trainable_parameters;  // of these, elements that require a gradient
};

/// The modules and sizes of a model.
struct Summary {
  std::vector<SummaryRow> rows;           // each module before its children
  std::int64_t num_parameters = 0;        // elements of all parameters
  std::int64_t trainable_parameters = 0;  // of these, elements that require a gradient
  std::int64_t num_bytes = 0;             // bytes of all parameters and buffers, without gradients
};

/// Lists a model's modules and counts its parameters: `std::cout << nn::summary(model)` prints a table.
TANDEM_API Summary summary(const ModuleRef& module);

/// Internal: "layer 'fc1': Linear(in_features=64, out_features=256, bias=true)", a line for each module, to compare
/// models.
std::vector<std::string> layer_lines(const ModuleRef& module);

/// Prints a table of at most 100 columns: long names lose their beginning, long types and lists of parameters their
/// end.
TANDEM_API std::ostream& operator<<(std::ostream& out, const Summary& summary);

}  // namespace tandem::inline v0::nn
