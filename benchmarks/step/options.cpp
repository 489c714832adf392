#include "step/options.h"

#include "step/problem.h"

namespace bench {

void add_model_option(CLI::App& app, std::string& model) {
  cli::add_value(app, "--model", "N-N-...", "Inputs, hidden layers and outputs", model,
                 [&model](const std::string& text) {
                   if (parse_sizes(text).empty()) {
                     cli::refuse("--model", "two or more sizes from 1 to 1000000 with '-' between them", text);
                   }
                   model = text;
                 });
}

}  // namespace bench
