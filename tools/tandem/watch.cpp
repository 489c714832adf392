#include <algorithm>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <string_view>

#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <fmt/format.h>

#include <tandem/telemetry/text_screen.h>

#include "command_line/command_line.h"
#include "command_line/program.h"
#include "tandem/commands.h"

namespace tool {

namespace {

std::atomic<int> ended_by{0};  // a signal

void note_signal(int number) { ended_by = number; }

// A terminal that shows one screen, without echo and on a page of its own, until the end of the scope.
class Screen {
 public:
  Screen() {
    struct sigaction action{};
    action.sa_handler = note_signal;  // without SA_RESTART, so that poll() ends
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
      ::sigaction(number, &action, nullptr);
    }
    action.sa_handler = [](int) {};
    ::sigaction(SIGWINCH, &action, nullptr);
    has_keys_ = ::isatty(STDIN_FILENO) == 1 && ::tcgetattr(STDIN_FILENO, &before_) == 0;
    if (has_keys_) {
      termios raw = before_;
      raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
      ::tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    write("\x1b[?1049h\x1b[?25l");
  }
  ~Screen() {
    write("\x1b[?25h\x1b[?1049l");
    if (has_keys_) {
      ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
    }
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  void show(std::string_view text) const {
    std::string page = "\x1b[H";
    for (const char c : text) {
      page += c == '\n' ? std::string("\x1b[K\r\n") : std::string(1, c);
    }
    write(page + "\x1b[J");
  }
  // Waits, at most for so long. Returns whether the user wants to leave.
  bool wait(int milliseconds) const {
    pollfd keys{.fd = has_keys_ ? STDIN_FILENO : -1, .events = POLLIN, .revents = 0};
    if (::poll(&keys, 1, milliseconds) > 0) {
      char key = 0;
      const ssize_t count = ::read(STDIN_FILENO, &key, 1);
      return count <= 0 || key == 'q' || key == 'Q';
    }
    return ended_by != 0;
  }

 private:
  static void write(std::string_view text) {
    while (!text.empty()) {
      const ssize_t count = ::write(STDOUT_FILENO, text.data(), text.size());
      if (count < 0 && errno != EINTR) {
        return;
      }
      text.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    }
  }

  termios before_{};
  bool has_keys_ = false;
};

bool has_unicode() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {  // the first that is set counts
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0') {
      std::string text(value);
      std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
      return text.find("UTF-8") != std::string::npos || text.find("UTF8") != std::string::npos;
    }
  }
  return false;
}

tandem::telemetry::ScreenSize size_of_terminal() {
  tandem::telemetry::ScreenSize size{.has_unicode = has_unicode()};
  winsize window{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0 && window.ws_row > 0) {
    size.columns = window.ws_col;
    size.rows = window.ws_row;
  }
  return size;
}

}  // namespace

int watch(int argc, const char* const* argv) {
  std::string folder;
  double every = 1;
  bool once = false;
  CLI::App app(
      "Shows a run while it goes on: its last numbers, curves, options and the advice of\n--report. Only reads "
      "its folder, which may be of another machine.",
      "tandem watch");
  app.add_option("folder", folder, "The folder of a run")->type_name("RUN")->required();
  cli::add_number(app, "--every", "SECONDS", "Time between two looks", every, 0.1, 3600);
  app.add_flag("--once", once, "Print one screen; so it is where stdout is no terminal");
  app.footer(
      "q or Ctrl-C leaves; the run goes on.\n\n"
      "Examples:\n"
      "  tandem watch runs/mlp-20261128-101500\n"
      "  tandem watch runs/mlp-20261128-101500 --once");
  if (const auto code = cli::parse(app, argc, argv)) {
    return *code;
  }
  if (once || ::isatty(STDOUT_FILENO) != 1) {
    fmt::print("{}", tandem::telemetry::text_screen(folder, size_of_terminal()));
    return 0;
  }
  tandem::telemetry::text_screen(folder, {});  // a wrong folder is an error before the screen changes
  const Screen screen;
  do {
    const tandem::telemetry::ScreenSize size = size_of_terminal();
    // A line of its own for the last row would scroll the page.
    std::string text = tandem::telemetry::text_screen(folder, {size.columns, size.rows - 1, size.has_unicode});
    screen.show(text);
  } while (!screen.wait(static_cast<int>(1000 * every)));
  return 0;
}

}  // namespace tool
