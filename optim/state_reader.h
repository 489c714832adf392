#pragma once

#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include <tandem/tensor/state_dict.h>

// Internal: checks a state against what is expected of it, so that all that is wrong with it comes in one message.

namespace tandem::inline v0::optim {

class StateReader {
 public:
  /// `reader` is who loads: "SGD". Both must outlive this.
  StateReader(const StateDict& state, const char* reader) : state_(state), reader_(reader) {}

  /// Whether there is anything of that name; a further mention of it is no surprise then.
  bool has(const std::string& name);
  /// A floating point tensor of that shape. Undefined when it is not fit, which is noted.
  Tensor tensor(const std::string& name, const Shape& shape);
  /// `otherwise` when it is not fit.
  double number(const std::string& name, double otherwise);
  /// Must be `least` or more, which it is too when it is not fit.
  std::int64_t integer(const std::string& name, std::int64_t least = 0);
  /// A list of numbers; empty when it is not fit.
  std::vector<double> numbers(const std::string& name, std::size_t count);

  void note(std::string problem) { problems_.push_back(std::move(problem)); }
  /// Throws ConfigError with all that was noted, and the names that nobody asked for.
  void finish();

 private:
  const Tensor* find(const std::string& name);
  const Tensor* find(const std::string& name, const Shape& shape);

  const StateDict& state_;
  const char* reader_;
  std::unordered_set<std::string> asked_;
  std::vector<std::string> missing_;
  std::vector<std::string> problems_;
};

}  // namespace tandem::inline v0::optim
