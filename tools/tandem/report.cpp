#include <string>
#include <vector>

#include <fmt/format.h>

#include <tandem/core/file.h>
#include <tandem/telemetry/report.h>

#include "command_line/command_line.h"
#include "command_line/program.h"
#include "tandem/commands.h"

namespace tool {

int report(int argc, const char* const* argv) {
  std::vector<std::string> folders;
  std::string out;
  CLI::App app("Makes a page about a run: curves, where the time of a step goes, diagnosis, options.", "tandem report");
  app.add_option("folders", folders, "The folder of a run, and those of others to draw beside it")
      ->type_name("RUN")
      ->required();
  cli::add_path(app, "--out", "The page; when not given, report.html in the first folder", out);
  app.footer(
      "Examples:\n"
      "  tandem report runs/mlp-20261128-101500\n"
      "  tandem report runs/new runs/old --out both.html\n"
      "  mlp --ranks 2 --report --out runs/two && tandem report runs/two");
  if (const auto code = cli::parse(app, argc, argv)) {
    return *code;
  }
  const std::string page =
      tandem::telemetry::html_report(folders.front(), std::vector(folders.begin() + 1, folders.end()));
  out = out.empty() ? folders.front() + "/report.html" : out;
  tandem::core::replace_file(out, {page});
  fmt::print("{}\n", out);
  return 0;
}

}  // namespace tool
