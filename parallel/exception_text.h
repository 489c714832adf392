#pragma once

#include <exception>
#include <string>

// Internal.

namespace tandem::inline v0::parallel::detail {

/// In a handler: what the exception says.
inline std::string text_of_exception() {
  try {
    throw;
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "what was thrown is not a std::exception";
  }
}

}  // namespace tandem::inline v0::parallel::detail
