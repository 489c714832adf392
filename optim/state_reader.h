#pragma once

#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include <tandem/tensor/state_dict.h>

// Internal: checks a state against its expected contents and collects all problems into one message.

namespace tandem::inline v0::optim {

class StateReader {
 public:
  /// `reader` names the class that loads, such as "SGD". Both must outlive the reader.
  StateReader(const StateDict& state, const char* reader) : state_(state), reader_(reader) {}

  /// Whether the state has that name. The name then counts as expected by finish().
  bool has(const std::string& name);
  /// A floating point tensor of that shape. If it is unfit, returns an undefined tensor and notes the problem.
  Tensor tensor(const std::string& name, const Shape& shape);
  /// A number. If it is unfit, returns `otherwise` and notes the problem.
  double number(const std::string& name, double otherwise);
  /// An integer of at least `least`. If it is unfit, returns `least` and notes the problem.
  std::int64_t integer(const std::string& name, std::int64_t least = 0);
  /// A list of `count` numbers. If it is unfit, returns an empty list and notes the problem.
  std::vector<double> numbers(const std::string& name, std::size_t count);

  void note(std::string problem) { problems_.push_back(std::move(problem)); }
  /// Throws ConfigError with all noted problems and all names of the state that were never read.
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
