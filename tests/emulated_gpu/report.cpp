#include "report.h"

#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

#include <fmt/format.h>

#include "block.h"
#include "fiber.h"
#include "runtime.h"

namespace emulated_gpu::detail {

namespace {

struct sigaction previous;

// A signal handler may not do this in general. Here the program is lost anyway and should say why, if it can.
void on_fault(int signal, siginfo_t* info, void* context) {
  const void* address = info->si_addr;
  const std::string place = place_in_kernel();
  if (Fiber::overflowed(address)) {
    report_and_abort(place + ": its stack is full");
  }
  if (const Device* device = Runtime::get().device_of(address); device != nullptr) {
    const std::string who = place.empty() ? "host code" : place;
    report_and_abort(fmt::format("{} touched {}{}", who, device->arena.describe(address),
                                 place.empty() ? "" : ", which it has no access to"));
  }
  if ((previous.sa_flags & SA_SIGINFO) != 0) {
    previous.sa_sigaction(signal, info, context);
  } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    previous.sa_handler(signal);
  } else {
    sigaction(signal, &previous, nullptr);  // repeats the access without the handler
  }
}

}  // namespace

void report_and_abort(const std::string& what) {
  fmt::print(stderr, "emulated GPU: {}\n", what);
  std::fflush(stderr);
  std::abort();
}

void provide_signal_stack() {
  constexpr std::size_t kSize = 64 << 10;
  static thread_local bool done = false;
  static thread_local std::unique_ptr<char[]> memory;
  stack_t stack{};
  if (done || sigaltstack(nullptr, &stack) != 0 || (stack.ss_flags & SS_DISABLE) == 0) {
    return;
  }
  done = true;
  struct Remove {
    ~Remove() {
      stack_t none{};
      none.ss_flags = SS_DISABLE;
      sigaltstack(&none, nullptr);
    }
  };
  memory = std::make_unique<char[]>(kSize);
  static thread_local const Remove remove;  // runs before the memory is freed
  stack = stack_t{};
  stack.ss_sp = memory.get();
  stack.ss_size = kSize;
  sigaltstack(&stack, nullptr);
}

void install_fault_handler() {
  struct sigaction action{};
  action.sa_sigaction = &on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &action, &previous);
}

}  // namespace emulated_gpu::detail
