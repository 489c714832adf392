#include "step/options.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "step/problem.h"

namespace bench {

void add_model_option(CLI::App& app, std::string& model, const std::vector<std::string>& nets) {
  const std::string or_net = nets.empty() ? "" : fmt::format(", or {}", fmt::join(nets, ", "));
  cli::add_value(app, "--model", "N-N-...", ("Inputs, hidden layers and outputs" + or_net).c_str(), model,
                 [&model, nets, or_net](const std::string& text) {
                   if (parse_sizes(text).empty() && std::find(nets.begin(), nets.end(), text) == nets.end()) {
                     cli::refuse("--model", "two or more sizes from 1 to 1000000 with '-' between them" + or_net, text);
                   }
                   model = text;
                 });
}

}  // namespace bench
