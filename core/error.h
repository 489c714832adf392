#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <source_location>
#include <string>
#include <string_view>

#include <tandem/core/export.h>

namespace tandem::inline v0 {

/// Root of everything tandem throws. The text says which op or layer (with its full module path), what was expected,
/// what came, and what to do about it. Recoverable: after any tandem exception, tensors and modules are unchanged
/// unless the throwing function says otherwise.
class TANDEM_API Error : public std::exception {
 public:
  explicit Error(std::string message, std::source_location where = std::source_location::current());
  // No moves: an error that was moved from would have no text.
  Error(const Error&) noexcept = default;
  Error& operator=(const Error&) noexcept = default;

  /// The message, and what add_context() appended.
  const char* what() const noexcept override;

  /// Appends a line that says what was going on; callers on the way up use it while rethrowing:
  /// `catch (Error& e) { e.add_context("while loading 'a.csv'"); throw; }`
  Error& add_context(std::string_view context);

  /// Where inside tandem the check failed (for bug reports; what() is for users).
  const std::source_location& where() const noexcept { return where_; }

 private:
  std::shared_ptr<std::string> message_;  // shared, so that copying an exception cannot throw
  std::source_location where_;
};

class TANDEM_API ShapeError : public Error {
 public:
  using Error::Error;
};
class TANDEM_API DTypeError : public Error {
 public:
  using Error::Error;
};
class TANDEM_API DeviceError : public Error {
 public:
  using Error::Error;
};
/// Misuse of the recorded graph: backward twice, a saved value changed in place, gradients of integers, ...
class TANDEM_API AutogradError : public Error {
 public:
  using Error::Error;
};
class TANDEM_API OutOfMemory : public Error {
 public:
  using Error::Error;
};
/// Files: missing, empty, truncated, corrupt, or not writable. Names the file and the byte offset or line:column.
class TANDEM_API IoError : public Error {
 public:
  using Error::Error;
};
/// A wrong option, argument or module structure.
class TANDEM_API ConfigError : public Error {
 public:
  using Error::Error;
};
/// What a captured step (graph::capture) cannot do.
class TANDEM_API CaptureError : public Error {
 public:
  using Error::Error;
};
/// What went wrong between ranks.
enum class CommFault : std::uint8_t {
  peer_lost,  // a rank ended, threw, or destroyed its process group
  timeout,    // somebody did not come before the deadline
  mismatch,   // ranks made different calls
  aborted,    // ProcessGroup::abort(), or a failure of this rank outside of communication
  init        // the group could not be formed
};
/// "peer_lost", ...
TANDEM_API std::string_view name(CommFault fault) noexcept;
/// A collective that failed. Its process group is dead from then on: every later call throws this again.
class TANDEM_API CommError : public Error {
 public:
  /// As far as it is known.
  struct Details {
    CommFault fault = CommFault::aborted;  // what went wrong
    int rank = -1;                         // whose doing it was, in the group
    std::int64_t generation = 0;           // of the job: grows when a group is formed again without the lost
    std::int64_t sequence = -1;            // number of the collective in its group, from 0
    const char* op = "";                   // "all_reduce", ...
    std::int64_t bytes = -1;               // that the failing rank gave
    double elapsed = 0;                    // seconds from the call to the failure
  };
  CommError(std::string message, const Details& details, std::source_location where = std::source_location::current());
  /// What a program may want to decide by.
  const Details& details() const noexcept { return details_; }

 private:
  Details details_;
};
/// A value that no op can use: a class index out of range, a loss that is not finite.
class TANDEM_API ValueError : public Error {
 public:
  using Error::Error;
};

}  // namespace tandem::inline v0
