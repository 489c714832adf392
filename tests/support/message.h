#pragma once

#include <regex>
#include <string>
#include <typeinfo>

#include <gtest/gtest.h>

#include <tandem/core/error.h>

#include "support/gpu.h"

namespace tandem::test {

/// A message without its code, " [TDM-E101]": the codes of mistakes are the matter of tests/messages.
inline std::string without_code(const std::string& text) {
  static const std::regex code(R"( \[TDM-[EW][0-9]{3}\])");
  return std::regex_replace(text, code, "");
}

/// The text, without its code, of the E that `body` throws; any other outcome fails the test. For golden texts:
/// EXPECT_EQ(message_of<ShapeError>([&] { a + b; }), "..."). A GPU may find the error late, so this function waits for
/// it and words the text as_on_cpu().
template <class E, class Body>
std::string message_of(Body&& body) {
  try {
    body();
    wait_for_gpu();
  } catch (const Error& error) {
    EXPECT_TRUE(typeid(error) == typeid(E)) << "another type of error: " << typeid(error).name();
    return without_code(as_on_cpu(error.what()));
  } catch (const std::exception& error) {
    ADD_FAILURE() << "not one of tandem's errors: " << error.what();
    return {};
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

}  // namespace tandem::test
