#include <tandem/checkpoint/signals.h>

#include <array>
#include <atomic>
#include <csignal>
#include <mutex>

#include <signal.h>

namespace tandem::inline v0::checkpoint {

namespace {

constexpr std::array kSignals{SIGINT, SIGTERM, SIGUSR1};

std::atomic<int> stop_signal{0};
std::atomic<bool> has_been_asked[2];  // for SIGINT and SIGTERM
std::atomic<int> save_requests{0};
static_assert(std::atomic<int>::is_always_lock_free);  // as a signal handler needs

void note_signal(int number) {
  if (number == SIGUSR1) {
    save_requests.fetch_add(1);
    return;
  }
  if (has_been_asked[number == SIGTERM ? 1 : 0].exchange(true)) {  // the second one
    ::signal(number, SIG_DFL);
    ::raise(number);
  }
  stop_signal.store(number);
}

std::mutex signals_mutex;
int existing_signals = 0;  // RunSignals objects: ranks may be threads
std::array<struct sigaction, kSignals.size()> handlers_before;
std::array<bool, kSignals.size()> is_handler_ours;

}  // namespace

RunSignals::RunSignals() {
  const std::lock_guard lock(signals_mutex);
  if (existing_signals++ > 0) {
    return;
  }
  stop_signal = 0;
  has_been_asked[0] = has_been_asked[1] = false;
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], nullptr, &handlers_before[i]);
    is_handler_ours[i] = (handlers_before[i].sa_flags & SA_SIGINFO) == 0 && handlers_before[i].sa_handler == SIG_DFL;
    if (is_handler_ours[i]) {
      struct sigaction action{};
      action.sa_handler = note_signal;
      action.sa_flags = SA_RESTART;
      ::sigaction(kSignals[i], &action, nullptr);
    }
  }
}

RunSignals::~RunSignals() {
  const std::lock_guard lock(signals_mutex);
  if (--existing_signals > 0) {
    return;
  }
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    struct sigaction now{};
    ::sigaction(kSignals[i], nullptr, &now);
    if (is_handler_ours[i] && now.sa_handler == note_signal) {  // the program has not set one meanwhile
      ::sigaction(kSignals[i], &handlers_before[i], nullptr);
    }
  }
}

int RunSignals::stop() noexcept { return stop_signal.load(std::memory_order_relaxed); }
int RunSignals::saves() noexcept { return save_requests.load(std::memory_order_relaxed); }

}  // namespace tandem::inline v0::checkpoint
