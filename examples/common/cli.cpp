#include "common/cli.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>

#include <tandem/core/device.h>
#include <tandem/core/error.h>
#include <tandem/core/suggest.h>

namespace example {

namespace {

constexpr std::int64_t kMaxCount = 1'000'000;
constexpr std::size_t kHelpColumns = 80;
constexpr std::size_t kNameColumns = 24;

// CLI11 2.1 does not wrap descriptions, and shows defaults among the names.
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

// An argument as errors show it: on one line, and not all of a long one.
std::string shown(std::string_view text) {
  constexpr std::size_t kMost = 80;
  std::string line(text.substr(0, kMost));
  std::replace_if(line.begin(), line.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; }, '?');
  return text.size() > kMost ? line + "..." : line;
}

[[noreturn]] void refuse(const std::string& flag, std::string_view expected, std::string_view text) {
  throw CLI::ValidationError(flag, fmt::format("expected {}, got '{}'", expected, shown(text)));
}

// Not CLI11's own conversion: that reads "010" as eight and drops the empty entry of "256,,10".
template <class T>
bool read_whole(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

// read(text) stores the value or calls refuse(flag, ...).
template <class Read>
CLI::Option* add_value(CLI::App& app, const char* flag, const char* type, const char* description,
                       const std::string& default_text, const Read& read) {
  return app.add_option_function<std::string>(flag, read, description)->type_name(type)->default_str(default_text);
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
    // "--out --json" is a forgotten value, not a folder; "./--json" can still be had.
    if (text.empty() || text[0] == '-') {
      refuse(flag, "a path", text);
    }
    target = text;
  });
}

std::vector<std::int64_t> read_hidden(const std::string& text) {
  std::vector<std::int64_t> sizes;
  std::string_view rest = text;
  for (bool more = true; more;) {
    const auto comma = rest.find(',');
    more = comma != std::string_view::npos;
    std::int64_t size = 0;
    if (!read_whole(rest.substr(0, comma), size) || size < 1 || size > kMaxCount) {
      refuse("--hidden", fmt::format("layer sizes from 1 to {} with commas between them, like 256,128", kMaxCount),
             text);
    }
    sizes.push_back(size);
    rest.remove_prefix(more ? comma + 1 : rest.size());
  }
  return sizes;
}

double read_number(const char* flag, const std::string& text, double low, double high, bool above_low = false) {
  double value = 0;
  if (!read_whole(text, value) || !std::isfinite(value) || value < low || value > high || (above_low && value == low)) {
    refuse(flag,
           std::isfinite(high) ? fmt::format("a number from {} to {}", low, high)
                               : fmt::format("a finite number {} {}", above_low ? "above" : "not below", low),
           text);
  }
  return value;
}

std::string read_choice(const char* flag, const std::string& text, const std::vector<std::string>& choices) {
  if (std::find(choices.begin(), choices.end(), text) == choices.end()) {
    const std::vector<std::string> first(choices.begin(), choices.end() - 1);
    refuse(flag, fmt::format("{} or {}", fmt::join(first, ", "), choices.back()), text);
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

void add_common_options(CLI::App& app, CommonOptions& options, const std::string& data) {
  add_path(app, "--data", data.c_str(), options.data);
  add_whole<std::int64_t>(app, "--epochs", "Passes over the training data", options.epochs, 1, kMaxCount);
  add_whole<std::int64_t>(app, "--batch-size", "Samples in one training step", options.batch_size, 1, kMaxCount);
  add_value(app, "--lr", "RATE", "Learning rate", fmt::format("{}", options.lr), [&options](const std::string& text) {
    options.lr = read_number("--lr", text, 0, std::numeric_limits<double>::infinity(), true);
  });
  add_choice(app, "--optimizer", "adam, adamw or sgd", options.optimizer, {"adam", "adamw", "sgd"});
  add_value(app, "--hidden", "N,N,...", "Sizes of the hidden layers", fmt::format("{}", fmt::join(options.hidden, ",")),
            [&options](const std::string& text) { options.hidden = read_hidden(text); });
  add_value(app, "--device", "NAME", "cpu, cpu:1, cuda, cuda:0", options.device, [&options](const std::string& text) {
    try {
      tandem::require_available(tandem::Device(text));
    } catch (const tandem::Error& e) {
      throw CLI::ValidationError("--device", e.what());
    }
    options.device = text;
  });
  add_whole(app, "--threads", "Compute threads; 0: TANDEM_NUM_THREADS, else all cores", options.threads, 0, 256);
  add_whole<std::uint64_t>(app, "--seed", "Start of the random numbers: the same seed gives the same run", options.seed,
                           0, std::numeric_limits<std::int64_t>::max());
  add_path(app, "--out", "Run folder, new or empty; when not given, one under runs/", options.out);
  app.add_flag("--captured", options.captured, "Record the training step and replay it: the same numbers, sooner");
  app.add_flag("--json", options.json, "End stdout with the results as one line of JSON");
  app.add_flag("--quiet", options.quiet, "No progress on stderr");
}

std::optional<int> parse(CLI::App& app, int argc, const char* const* argv) {
  app.set_help_flag("--help,-h", "Print this help and exit");
  app.set_version_flag("--version", fmt::format("{} (tandem " TANDEM_EXAMPLE_VERSION ")", app.get_name()),
                       "Print the version and exit");
  app.formatter(std::make_shared<HelpFormatter>());
  app.allow_extras();
  for (CLI::Option* option : app.get_options()) {
    option->take_last();
    option->disable_flag_override();  // --json=false would be yes
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {
    return app.exit(e);
  } catch (const CLI::ArgumentMismatch& e) {  // the text is CLI11's shorthand: "--epochs: 1 required N missing"
    const std::string_view text = e.what();
    const auto name_end = text.find_first_of(": ");
    const bool is_flag = text[name_end] == ' ';  // "--json was given a disallowed flag override"
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

void narrate(const std::string& line) { std::fputs((line + "\n").c_str(), stderr); }

void print_result_json(const tandem::telemetry::Fields& result) {
  fmt::print("{}\n", tandem::telemetry::to_json(result));
}

namespace {

// A closed descriptor 0, 1 or 2 is the next that open() hands out: what is printed would end up in a data file. The
// stand-ins can only be read, so that a result that went nowhere still counts as not written.
void keep_standard_streams_apart() {
  int fd = 0;
  do {
    fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) {
    ::close(fd);
  }
}

}  // namespace

int run_main(int argc, char** argv, int (*program)(int argc, char** argv)) {
  keep_standard_streams_apart();
  int code = 1;
  try {
    code = program(argc, argv);
  } catch (const std::exception& e) {  // tandem::Error is one
    narrate(fmt::format("error: {}", e.what()));
  }
  // Output waits in the buffer until here: only now does the system say that the disk is full or the pipe closed.
  errno = 0;
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0 || !std::cout) {
    const int error = errno;
    narrate(fmt::format("error: cannot write to stdout{}{}", error != 0 ? ": " : "",
                        error != 0 ? std::strerror(error) : ""));
    return 1;
  }
  return code;
}

}  // namespace example
