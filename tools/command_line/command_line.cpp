#include "command_line/command_line.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/error.h>

#include "command_line/program.h"

namespace cli {

namespace {

constexpr std::size_t kHelpColumns = 80;
constexpr std::size_t kNameColumns = 24;

// CLI11 2.1 does not wrap descriptions and shows defaults among the names.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    std::string line = "  " + make_option_name(option, is_positional);
    if (option->get_type_size() != 0) {
      line += " " + option->get_type_name();
    }
    std::vector<std::string> words = CLI::detail::split(option->get_description(), ' ');
    if (!option->get_default_str().empty()) {
      words.push_back(fmt::format("[default: {}]", option->get_default_str()));
    }
    std::string text;
    for (const std::string& word : words) {
      if (line.size() < kNameColumns) {
        line.resize(kNameColumns, ' ');
      } else if (line.size() + 1 + word.size() > kHelpColumns) {
        text += line + "\n";
        line.assign(kNameColumns, ' ');
      } else if (line.size() > kNameColumns) {
        line += ' ';
      }
      line += word;
    }
    return text + line + "\n";
  }

  std::string make_usage(const CLI::App* app, std::string name) const override {
    return "\n" + CLI::Formatter::make_usage(app, std::move(name));
  }
};

std::string read_choice(const char* flag, const std::string& text, const std::vector<std::string>& choices) {
  if (std::find(choices.begin(), choices.end(), text) == choices.end()) {
    const std::vector<std::string> first(choices.begin(), choices.end() - 1);
    refuse(flag, fmt::format("{}{}{}", fmt::join(first, ", "), first.empty() ? "" : " or ", choices.back()), text);
  }
  return text;
}

std::string extra_argument_text(const CLI::App& app, const std::string& argument) {
  if (!argument.starts_with('-') || argument == "--") {
    return fmt::format("unexpected argument '{}'", shown(argument));
  }
  const std::string flag = argument.substr(0, argument.find('='));
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      known.push_back("--" + name);
    }
  }
  const std::string close = tandem::core::nearest(flag, known);
  return fmt::format("unknown flag {}{}", shown(flag),
                     close.empty() ? "; --help lists all flags" : fmt::format("; did you mean {}?", close));
}

}  // namespace

[[noreturn]] void refuse(const std::string& flag, std::string_view expected, std::string_view text) {
  throw CLI::ValidationError(flag, fmt::format("expected {}, got '{}'", expected, shown(text)));
}

CLI::Option* add_value(CLI::App& app, const char* flag, const char* type, const char* description,
                       const std::string& default_text, const std::function<void(const std::string&)>& read) {
  return app.add_option_function<std::string>(flag, read, description)->type_name(type)->default_str(default_text);
}

double read_number(const char* flag, const std::string& text, double low, double high, bool above_low) {
  double value = 0;
  if (!read_whole(text, value) || !std::isfinite(value) || value < low || value > high || (above_low && value == low)) {
    refuse(flag,
           std::isfinite(high) ? fmt::format("a number from {} to {}", low, high)
                               : fmt::format("a finite number {} {}", above_low ? "above" : "not below", low),
           text);
  }
  return value;
}

template <class T>
void add_whole(CLI::App& app, const char* flag, const char* description, T& target, T low, T high) {
  add_value(app, flag, "N", description, fmt::format("{}", target), [=, &target](const std::string& text) {
    T value{};
    if (!read_whole(text, value) || value < low || value > high) {
      refuse(flag, fmt::format("a whole number from {} to {}", low, high), text);
    }
    target = value;
  });
}

void add_path(CLI::App& app, const char* flag, const char* description, std::string& target) {
  add_value(app, flag, "PATH", description, target, [=, &target](const std::string& text) {
    // "--out --json" is a forgotten value, not a folder. A file of that name can be given as "./--json".
    if (text.empty() || text[0] == '-') {
      refuse(flag, "a path", text);
    }
    target = text;
  });
}

template void add_whole(CLI::App&, const char*, const char*, int&, int, int);
template void add_whole(CLI::App&, const char*, const char*, std::int64_t&, std::int64_t, std::int64_t);
template void add_whole(CLI::App&, const char*, const char*, std::uint64_t&, std::uint64_t, std::uint64_t);

void add_number(CLI::App& app, const char* flag, const char* type, const char* description, double& target, double low,
                double high) {
  add_value(app, flag, type, description, fmt::format("{}", target),
            [=, &target](const std::string& text) { target = read_number(flag, text, low, high); });
}

void add_choice(CLI::App& app, const char* flag, const char* description, std::string& target,
                std::vector<std::string> choices) {
  add_value(app, flag, "NAME", description, target,
            [flag, &target, choices = std::move(choices)](const std::string& text) {
              target = read_choice(flag, text, choices);
            });
}

void add_text(CLI::App& app, const char* flag, const char* type, const char* description, std::string& target) {
  add_value(app, flag, type, description, target, [=, &target](const std::string& text) {
    if (text.empty()) {
      refuse(flag, "some text", text);
    }
    target = text;
  });
}

std::optional<int> parse(CLI::App& app, int argc, const char* const* argv) {
  app.set_help_flag("--help,-h", "Print this help and exit");
  app.set_version_flag("--version", fmt::format("{} (tandem " TANDEM_PROGRAM_VERSION ")", app.get_name()),
                       "Print the version and exit");
  app.formatter(std::make_shared<HelpFormatter>());
  app.allow_extras();
  for (CLI::Option* option : app.get_options()) {
    option->take_last();
    option->disable_flag_override();  // otherwise --json=false would mean yes
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {
    return app.exit(e);
  } catch (const CLI::ArgumentMismatch& e) {  // CLI11's text is terse: "--epochs: 1 required N missing"
    const std::string_view text = e.what();
    const auto name_end = text.find_first_of(": ");
    const bool is_flag = text[name_end] == ' ';  // no ':': "--json was given a disallowed flag override"
    narrate(fmt::format("error: {}{}: {}", is_flag ? "--" : "", text.substr(0, name_end),
                        is_flag ? "takes no value" : "a value must follow"));
    return 2;
  } catch (const CLI::ParseError& e) {
    narrate(fmt::format("error: {}", e.what()));
    return 2;
  }
  if (const std::vector<std::string> extras = app.remaining(); !extras.empty()) {
    narrate("error: " + extra_argument_text(app, extras.front()));
    return 2;
  }
  return std::nullopt;
}

}  // namespace cli
