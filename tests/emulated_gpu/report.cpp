#include "report.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <signal.h>

#include <cstdio>
#include <cstdlib>

#include "block.h"
#include "fiber.h"
#include "runtime.h"

namespace emulated_gpu::detail {

namespace {

struct sigaction previous;

// Not what a signal handler may do in general: the program is lost, and says why if it can.
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
    sigaction(signal, &previous, nullptr);  // the access is made again
  }
}

}  // namespace

void report_and_abort(const std::string& what) {
  fmt::print(stderr, "emulated GPU: {}\n", what);
  std::fflush(stderr);
  std::abort();
}

void install_fault_handler() {
  struct sigaction action{};
  action.sa_sigaction = &on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &action, &previous);
}

std::string symbol_name(const void* function) {
  Dl_info info{};
  if (dladdr(function, &info) != 0 && info.dli_sname != nullptr && info.dli_saddr == function) {
    int status = 0;
    char* readable = abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status);
    std::string name = readable != nullptr ? readable : info.dli_sname;
    std::free(readable);
    return name;
  }
  return fmt::format("at {}", function);
}

}  // namespace emulated_gpu::detail
