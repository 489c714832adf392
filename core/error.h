#pragma once

#if defined(__clang__) && __clang_major__ < 16
#error "tandem needs clang 16 or newer, or GCC 12 or newer"
#endif

#include <cstdint>
#include <exception>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <string_view>

#include <tandem/core/export.h>

namespace tandem::inline v0 {

/// Base class of all exceptions that tandem throws. The text names the op or layer (with its full module path), the
/// expected value, the actual value, and the fix; that of a common mistake has a code that docs/errors.md
/// explains, such as [TDM-E101]. Every error is recoverable: tensors and modules are unchanged after it, unless the
/// throwing function says otherwise.
class TANDEM_API Error : public std::exception {
 public:
  explicit Error(std::string message, std::source_location where = std::source_location::current());
  // Errors are copied, never moved: a moved-from error would have no text.
  Error(const Error&) noexcept = default;
  Error& operator=(const Error&) noexcept = default;

  /// The message, followed by the lines that add_context() appended.
  const char* what() const noexcept override;

  /// Appends a line about the operation in progress; callers use it while rethrowing:
  /// `catch (Error& e) { e.add_context("while loading 'a.csv'"); throw; }`
  Error& add_context(std::string_view context);

  /// The source location of the failed check inside tandem, for bug reports; what() is the text for users.
  const std::source_location& where() const noexcept { return where_; }

 private:
  std::shared_ptr<std::string> message_;  // shared, so that copying an exception cannot throw
  std::source_location where_;
};

/// Shapes that do not fit the op or each other.
class TANDEM_API ShapeError : public Error {
 public:
  using Error::Error;
};
/// An element type that the op does not accept.
class TANDEM_API DTypeError : public Error {
 public:
  using Error::Error;
};
/// A device that does not exist or has failed, or operands on different devices.
class TANDEM_API DeviceError : public Error {
 public:
  using Error::Error;
};
/// Misuse of the recorded graph: a second backward pass, a saved value changed in place, gradients of integers, ...
class TANDEM_API AutogradError : public Error {
 public:
  using Error::Error;
};
/// Memory of a device could not be allocated.
class TANDEM_API OutOfMemory : public Error {
 public:
  using Error::Error;
};
/// A file that is missing, empty, truncated, corrupt, or not writable. Names the file and the byte offset or
/// line:column.
class TANDEM_API IoError : public Error {
 public:
  using Error::Error;
};
/// A wrong option, argument or module structure.
class TANDEM_API ConfigError : public Error {
 public:
  using Error::Error;
};
/// An operation that a captured step (graph::capture) does not support.
class TANDEM_API CaptureError : public Error {
 public:
  using Error::Error;
};
/// The cause of a communication failure between ranks.
enum class CommFault : std::uint8_t {
  peer_lost,  // a rank ended, threw, or destroyed its process group
  timeout,    // a rank did not arrive before the deadline
  mismatch,   // ranks made different calls
  aborted,    // ProcessGroup::abort(), or a failure of this rank outside communication
  init        // the group could not be formed
};
/// "peer_lost", ...
TANDEM_API std::string_view name(CommFault fault) noexcept;
/// A collective that failed. Its process group is unusable afterward: every later call throws this error again.
class TANDEM_API CommError : public Error {
 public:
  /// Facts about the failure, as far as they are known.
  struct Details {
    CommFault fault = CommFault::aborted;  // cause of the failure
    int rank = -1;                         // rank (in the group) that caused the failure
    std::int64_t generation = 0;           // of the job; grows when a group is formed again without the lost ranks
    std::int64_t sequence = -1;            // number of the collective in its group, from 0
    const char* op = "";                   // "all_reduce", ...
    std::int64_t bytes = -1;               // number of bytes that the failing rank passed
    double elapsed = 0;                    // seconds from the call to the failure
  };
  CommError(std::string message, const Details& details, std::source_location where = std::source_location::current());
  /// The facts on which a program may base its reaction.
  const Details& details() const noexcept { return details_; }

 private:
  Details details_;
};
/// A value that no op can use: a class index out of range, or a loss that is not finite.
class TANDEM_API ValueError : public Error {
 public:
  using Error::Error;
};

namespace core {

/// For a destructor: the text of the exception that leaves its scope, if that is one of tandem's; empty if it is not,
/// or if there is none. It is the newest Error of this thread that still lives.
TANDEM_API std::string error_in_flight();

/// The candidate closest to `word` (edit distance, at most a third of its length), for "did you mean ...?". Returns an
/// empty string if no candidate is close.
TANDEM_API std::string nearest(std::string_view word, std::span<const std::string> candidates);

}  // namespace core
}  // namespace tandem::inline v0
