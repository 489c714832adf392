#include <tandem/core/warning.h>

#include <cstdio>
#include <mutex>
#include <set>
#include <utility>

#include <tandem/core/fork.h>

namespace tandem::inline v0 {

namespace {

struct Handler {
  core::ForkSafeMutex mutex;
  std::function<void(const std::string&)> call;
};

Handler& handler() {
  static auto& one = *new Handler;  // never destroyed: destructors may warn
  return one;
}

}  // namespace

void set_warning_handler(std::function<void(const std::string&)> call) {
  const std::lock_guard lock(handler().mutex);
  handler().call = std::move(call);
}

namespace core {

void warn(const std::string& text) {
  std::function<void(const std::string&)> call;
  {
    const std::lock_guard lock(handler().mutex);
    call = handler().call;
  }
  if (call) {
    call(text);
  } else {
    std::fprintf(stderr, "tandem: warning: %s\n", text.c_str());
  }
}

void warn_once(const std::string& text) {
  static ForkSafeMutex mutex;
  static auto& said = *new std::set<std::string>;  // never destroyed, like the handler
  {
    const std::lock_guard lock(mutex);
    if (!said.insert(text).second) {
      return;
    }
  }
  warn(text);
}

}  // namespace core
}  // namespace tandem::inline v0
