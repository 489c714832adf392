#include <algorithm>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <ctime>
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

void note_signal(int number) {
  if (number != SIGWINCH) {  // which only ends the wait
    ended_by = number;
  }
}

// A terminal that shows one screen, without echo and on a page of its own, until the end of the scope.
class Screen {
 public:
  Screen() {
    sigset_t ours;
    ::sigemptyset(&ours);
    struct sigaction action{};
    action.sa_handler = note_signal;
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH}) {
      ::sigaction(number, &action, nullptr);
      ::sigaddset(&ours, number);
    }
    ::pthread_sigmask(SIG_BLOCK, &ours, &unblocked_);  // they arrive while wait() waits, and none is lost
    has_keys_ = ::isatty(STDIN_FILENO) == 1 && ::tcgetattr(STDIN_FILENO, &before_) == 0;
    enter();
  }
  ~Screen() { leave(); }
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
  bool wait(double seconds) {
    const auto whole = static_cast<std::time_t>(seconds);
    const timespec time{.tv_sec = whole, .tv_nsec = static_cast<long>(1e9 * (seconds - static_cast<double>(whole)))};
    pollfd keys{.fd = has_keys_ ? STDIN_FILENO : -1, .events = POLLIN, .revents = 0};
    if (::ppoll(&keys, 1, &time, &unblocked_) > 0) {
      char key = 0;
      if (::read(STDIN_FILENO, &key, 1) <= 0) {
        return true;
      }
      constexpr char kInterrupt = 0x03;
      constexpr char kSuspend = 0x1a;
      constexpr char kQuit = 0x1c;
      if (key == kSuspend) {
        leave();
        ::raise(SIGSTOP);
        enter();
      }
      return key == 'q' || key == 'Q' || key == kInterrupt || key == kQuit;
    }
    return ended_by.exchange(0) != 0;
  }

 private:
  void enter() {
    if (has_keys_) {
      termios raw = before_;
      raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG);
      ::tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    write("\x1b[?1049h\x1b[?25l");
  }
  void leave() {
    write("\x1b[?25h\x1b[?1049l");
    if (has_keys_) {
      ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
    }
  }
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
  sigset_t unblocked_{};
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
  Screen screen;
  double took = 0;
  do {
    const auto begin = std::chrono::steady_clock::now();
    const tandem::telemetry::ScreenSize size = size_of_terminal();
    // A line of its own for the last row would scroll the page.
    screen.show(tandem::telemetry::text_screen(folder, {size.columns, size.rows - 1, size.has_unicode}));
    took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  } while (!screen.wait(std::max(every, 9 * took)));  // a long file takes at most a tenth of a core
  return 0;
}

}  // namespace tool
