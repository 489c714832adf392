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
constexpr double kMost = 1e15;  // a thousand million seconds, a million gigabytes

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
                                                     {"activation_bytes", &profile.activation_bytes}};
}

// Its truth values.
template <class Profile>
auto flags_of(Profile& profile) {
  using Flag = decltype(&profile.shares_memory);
  return std::vector<std::pair<const char*, Flag>>{{"shares_memory", &profile.shares_memory},
                                                   {"shards_updates", &profile.shards_updates},
                                                   {"shards_parameters", &profile.shards_parameters}};
}

bool is_size(double value) { return std::isfinite(value) && value >= 0 && value <= kMost; }

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
  for (const auto& [name, flag] : flags_of(*this)) {
    fields.push_back({name, *flag});
  }
  fields.push_back({kSizes, parameter_bytes});
  return fields;
}

StepProfile StepProfile::from_fields(const Fields& fields) {
  StepProfile profile;
  for (const auto& [name, number] : named_numbers(profile)) {
    const std::optional<double> value = number_in(value_of(fields, name));
    check<IoError>(value && is_size(*value), "'{}': expected a number from 0 to 1e15", name);
    *number = *value;
  }
  for (const auto& [name, flag] : flags_of(profile)) {
    const auto* value = std::get_if<bool>(&value_of(fields, name));
    check<IoError>(value != nullptr, "'{}': expected true or false", name);
    *flag = *value;
  }
  const auto* sizes = std::get_if<std::vector<double>>(&value_of(fields, kSizes));
  check<IoError>(sizes != nullptr && std::ranges::all_of(*sizes, is_size), "'{}': expected a list of numbers from 0",
                 kSizes);
  profile.parameter_bytes = *sizes;
  check<IoError>(profile.ranks >= 1 && profile.ranks <= 1 << 20 && profile.ranks == std::floor(profile.ranks),
                 "'ranks': expected a whole number from 1, got {}", profile.ranks);
  check<IoError>(
      profile.step_us > 0 && profile.forward_us + profile.backward_us > 0 && profile.bytes() > 0,
      "expected steps that compute, of a model with parameters: more than 0 in 'step_us', in 'forward_us' or "
      "'backward_us', and in '{}'",
      kSizes);
  return profile;
}

}  // namespace tandem::inline v0::telemetry
