#pragma once

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
/// A value that no op can use: a class index out of range, a loss that is not finite.
class TANDEM_API ValueError : public Error {
 public:
  using Error::Error;
};

}  // namespace tandem::inline v0
