#include "common/cli.h"

#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/output.h"
#include "fuzz/promises.h"
#include "fuzz/targets.h"

namespace tandem::fuzz {

namespace {

void check_options(const example::CommonOptions& options) {
  promise(options.epochs >= 1 && options.batch_size >= 1, "counts are at least 1");
  promise(std::isfinite(options.lr) && options.lr > 0, "the learning rate is a positive number");
  promise(options.threads >= 0 && options.threads <= 256, "threads are in range");
  promise(!options.hidden.empty(), "there is a hidden layer");
  for (const std::int64_t size : options.hidden) {
    promise(size >= 1, "layers have a size");
  }
}

}  // namespace

void cli(Bytes input) {
  const std::vector<std::string> arguments = arguments_of("program", input);
  std::vector<const char*> argv;
  for (const std::string& argument : arguments) {
    argv.push_back(argument.c_str());
  }
  check_promises(input.size(), [&] {
    CLI::App app("Teaches something.", "program");
    example::CommonOptions options;
    double rate = 0.5;
    std::string choice = "standard";
    std::string text = "price";
    example::add_common_options(app, options, "File or folder");
    example::add_number(app, "--dropout", "P", "Part of the elements", rate, 0, 1);
    example::add_choice(app, "--scaling", "How", choice, {"standard", "largest"});
    example::add_text(app, "--target", "NAME", "Column", text);
    Output output;
    const std::optional<int> code = example::parse(app, options, static_cast<int>(argv.size()), argv.data());
    promise(!code || *code == 0 || *code == 2, "the exit code is 0 or 2");
    promise(output.out().empty() == (code != 0), "help goes to stdout, and nothing else does");
    const std::string_view err = output.err();
    promise(err.empty() == (code != 2), "an error goes to stderr, and nothing else does");
    if (code == 2) {
      promise(err.starts_with("error: ") && err.size() <= 80 * 24, "an error is a line that fits on a screen");
      promise(err.find('\n') == err.size() - 1, "an error is one line");
    }
    if (!code) {
      check_options(options);
      promise(rate >= 0 && rate <= 1 && !text.empty(), "the program's own options are in range");
      promise(choice == "standard" || choice == "largest", "a choice is one of those that there are");
    }
  });
}

}  // namespace tandem::fuzz
