#pragma once

#include <charconv>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <CLI/CLI.hpp>

// Flags that behave alike in every program: --help shows the default, and the error for a wrong value names the
// expected and the given value. `target` holds the default and must outlive parse().

namespace cli {

/// A whole number from `low` to `high`, for int, std::int64_t and std::uint64_t.
template <class T>
void add_whole(CLI::App& app, const char* flag, const char* description, T& target, T low, T high);
/// A finite number from `low` to `high`; infinity for `high` sets no limit.
void add_number(CLI::App& app, const char* flag, const char* type, const char* description, double& target, double low,
                double high);
/// One of `choices`.
void add_choice(CLI::App& app, const char* flag, const char* description, std::string& target,
                std::vector<std::string> choices);
/// Text that is not empty.
void add_text(CLI::App& app, const char* flag, const char* type, const char* description, std::string& target);
/// A path. A value that begins with '-' is taken for a forgotten value.
void add_path(CLI::App& app, const char* flag, const char* description, std::string& target);
/// A value of any kind: read(text) stores the value or calls refuse().
CLI::Option* add_value(CLI::App& app, const char* flag, const char* type, const char* description,
                       const std::string& default_text, const std::function<void(const std::string&)>& read);

/// Throws the error "--flag: expected <expected>, got '<text>'".
[[noreturn]] void refuse(const std::string& flag, std::string_view expected, std::string_view text);

/// The finite number in `text`, or refuse(). With `above_low`, `low` itself is refused too.
double read_number(const char* flag, const std::string& text, double low, double high, bool above_low = false);

/// Parses a whole number. CLI11's own conversion reads "010" as eight and drops the empty entry of "256,,10".
template <class T>
bool read_whole(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

/// Adds --help and --version and parses. Returns an exit code when the program should end: 0 after help or version on
/// stdout, 2 after an error line on stderr. If a flag repeats, the last value counts. `app` needs a name; its footer
/// holds the Examples section.
std::optional<int> parse(CLI::App& app, int argc, const char* const* argv);

}  // namespace cli
