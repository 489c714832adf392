#pragma once

#include <exception>
#include <string>
#include <string_view>

// Internal: an exception of one rank that spawn() throws again in its caller, from another thread or process.

namespace tandem::inline v0::parallel {

/// The type of an exception that throw_again() can throw: "ShapeError", "std::runtime_error". Empty for all others,
/// such as a program's own, and for CommError, whose details are more than a text.
std::string_view carried_type(const std::exception& error);

/// Throws an exception of that type with that text. Returns if carried_type() never gives the type.
void throw_again(std::string_view type, const std::string& text);

}  // namespace tandem::inline v0::parallel
