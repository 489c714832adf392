#include <tandem/telemetry/step_profile.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <tandem/core/check.h>
#include <tandem/telemetry/metric_fields.h>

namespace tandem::inline v0::telemetry {

namespace {

constexpr const char* kSizes = "parameter_bytes";
constexpr const char* kSharesMemory = "shares_memory";

// The numbers of a profile with their names.
template <class Profile>
auto named_numbers(Profile& profile) {
  using Number = decltype(&profile.ranks);
  return std::vector<std::pair<const char*, Number>>{{"ranks", &profile.ranks},
                                                     {"rows", &profile.rows},
                                                     {"step_us", &profile.step_us},
                                                     {"input_us", &profile.input_us},
                                                     {"forward_us", &profile.forward_us},
                                                     {"backward_us", &profile.backward_us},
                                                     {"optimizer_us", &profile.optimizer_us},
                                                     {"rest_us", &profile.rest_us},
                                                     {"exposed_us", &profile.exposed_us},
                                                     {"exchange_us", &profile.exchange_us},
                                                     {"latency_us", &profile.latency_us},
                                                     {"buckets", &profile.buckets},
                                                     {"state_bytes", &profile.state_bytes},
                                                     {"peak_bytes", &profile.peak_bytes}};
}

const FieldValue& value_of(const Fields& fields, const char* name) {
  const auto field = std::ranges::find(fields, name, &Field::name);
  check<IoError>(field != fields.end(), "no field '{}': expected the numbers of a run's steps, as --report writes them",
                 name);
  return field->value;
}

}  // namespace

double StepProfile::bytes() const { return std::accumulate(parameter_bytes.begin(), parameter_bytes.end(), 0.0); }

Fields StepProfile::to_fields() const {
  Fields fields;
  for (const auto& [name, number] : named_numbers(*this)) {
    fields.push_back({name, *number});
  }
  fields.push_back({kSharesMemory, shares_memory});
  fields.push_back({kSizes, parameter_bytes});
  return fields;
}

StepProfile StepProfile::from_fields(const Fields& fields) {
  StepProfile profile;
  for (const auto& [name, number] : named_numbers(profile)) {
    const std::optional<double> value = number_in(value_of(fields, name));
    check<IoError>(value && std::isfinite(*value) && *value >= 0, "'{}': expected a number from 0", name);
    *number = *value;
  }
  const auto* shares = std::get_if<bool>(&value_of(fields, kSharesMemory));
  const auto* sizes = std::get_if<std::vector<double>>(&value_of(fields, kSizes));
  check<IoError>(shares != nullptr, "'{}': expected true or false", kSharesMemory);
  check<IoError>(sizes != nullptr && !sizes->empty() &&
                     std::ranges::all_of(*sizes, [](double size) { return std::isfinite(size) && size >= 0; }),
                 "'{}': expected a list of numbers from 0", kSizes);
  check<IoError>(profile.ranks >= 1 && profile.step_us > 0, "'ranks' and 'step_us': expected more than 0");
  profile.shares_memory = *shares;
  profile.parameter_bytes = *sizes;
  return profile;
}

}  // namespace tandem::inline v0::telemetry
