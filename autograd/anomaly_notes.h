#pragma once

#include <string>

#include <tandem/autograd/anomaly.h>

// Internal: looks at the results of ops like DetectAnomaly, and throws nothing.

namespace tandem::inline v0::autograd {

/// While it exists, the first result that is not finite is noted, on any thread of the process.
class TANDEM_API AnomalyNotes {
 public:
  AnomalyNotes();
  ~AnomalyNotes();
  AnomalyNotes(const AnomalyNotes&) = delete;
  AnomalyNotes& operator=(const AnomalyNotes&) = delete;

  /// "Linear 'fc1': the result [8, 4] has nan at element 3", or an empty text.
  std::string first() const;

 private:
  DetectAnomaly detects_;
};

}  // namespace tandem::inline v0::autograd
