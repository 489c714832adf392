#include "optimizers.h"

#include <array>
#include <stdexcept>
#include <string>

#include <tandem/optim/adagrad.h>
#include <tandem/optim/adam.h>
#include <tandem/optim/rmsprop.h>
#include <tandem/optim/sgd.h>

namespace tandem::golden {

using nlohmann::json;

namespace {

// One group per layer if the case has groups, else one group with all parameters.
std::vector<optim::ParamGroup> make_groups(const json& spec, const std::vector<Tensor>& parameters) {
  if (!spec.contains("groups")) {
    return {{.params = parameters}};
  }
  std::vector<optim::ParamGroup> groups{{.params = {parameters[0], parameters[1]}},
                                        {.params = {parameters[2], parameters[3]}}};
  for (std::size_t g = 0; g < 2; ++g) {
    const json& own = spec.at("groups").at(g);
    if (own.contains("lr")) groups[g].lr = own.at("lr").get<double>();
    if (own.contains("weight_decay")) groups[g].weight_decay = own.at("weight_decay").get<double>();
  }
  return groups;
}

template <class Optimizer, class Options>
std::unique_ptr<optim::Optimizer> make_adam(const json& spec, const std::vector<optim::ParamGroup>& groups) {
  const auto betas = spec.value("betas", std::array<double, 2>{0.9, 0.999});
  Options options{.lr = spec.at("lr"), .betas = {betas[0], betas[1]}};
  options.eps = spec.value("eps", options.eps);
  options.weight_decay = spec.value("weight_decay", options.weight_decay);
  options.amsgrad = spec.value("amsgrad", false);
  options.maximize = spec.value("maximize", false);
  options.master_weights = spec.value("master_weights", false);
  return std::make_unique<Optimizer>(groups, options);
}

}  // namespace

std::unique_ptr<optim::Optimizer> make_optimizer(const json& spec, const std::vector<Tensor>& parameters) {
  const std::string type = spec.at("type");
  const std::vector<optim::ParamGroup> groups = make_groups(spec, parameters);
  const auto number = [&](const char* name, double otherwise) { return spec.value(name, otherwise); };
  const bool maximize = spec.value("maximize", false);
  const bool master_weights = spec.value("master_weights", false);
  if (type == "SGD") {
    return std::make_unique<optim::SGD>(groups, optim::SGDOptions{.lr = spec.at("lr"),
                                                                  .momentum = number("momentum", 0),
                                                                  .dampening = number("dampening", 0),
                                                                  .weight_decay = number("weight_decay", 0),
                                                                  .nesterov = spec.value("nesterov", false),
                                                                  .maximize = maximize,
                                                                  .master_weights = master_weights});
  }
  if (type == "Adam") {
    return make_adam<optim::Adam, optim::AdamOptions>(spec, groups);
  }
  if (type == "AdamW") {
    return make_adam<optim::AdamW, optim::AdamWOptions>(spec, groups);
  }
  if (type == "RMSprop") {
    return std::make_unique<optim::RMSprop>(groups, optim::RMSpropOptions{.lr = spec.at("lr"),
                                                                          .alpha = number("alpha", 0.99),
                                                                          .eps = number("eps", 1e-8),
                                                                          .weight_decay = number("weight_decay", 0),
                                                                          .momentum = number("momentum", 0),
                                                                          .centered = spec.value("centered", false),
                                                                          .maximize = maximize,
                                                                          .master_weights = master_weights});
  }
  if (type == "Adagrad") {
    return std::make_unique<optim::Adagrad>(
        groups, optim::AdagradOptions{.lr = spec.at("lr"),
                                      .lr_decay = number("lr_decay", 0),
                                      .weight_decay = number("weight_decay", 0),
                                      .initial_accumulator_value = number("initial_accumulator_value", 0),
                                      .eps = number("eps", 1e-10),
                                      .maximize = maximize,
                                      .master_weights = master_weights});
  }
  throw std::out_of_range("optimizer '" + type + "' is not known to these tests");
}

}  // namespace tandem::golden
