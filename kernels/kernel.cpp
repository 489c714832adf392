#include <tandem/kernels/kernel.h>

#include <deque>
#include <mutex>

#include <tandem/core/check.h>
#include <tandem/core/fork.h>
#include <tandem/kernels/launch.h>

namespace tandem::inline v0::kernels {

namespace {

constinit thread_local Context* last = nullptr;
constinit thread_local bool ended = false;

struct Contexts {
  std::deque<Context> all;  // the addresses in a deque stay while it grows
  ~Contexts() {
    last = nullptr;
    ended = true;
  }
};

// Serves a thread-local object of the user that computes while its thread ends. The context is never freed, because
// nothing runs late enough to free it; the case is rare.
Context& late_context(Device device) {
  static core::ForkSafeMutex mutex;
  static auto& kept = *new std::deque<Context>;
  const std::lock_guard lock(mutex);
  kept.emplace_back().device = device;
  return kept.back();
}

Context& find_context(Device device) {
  if (ended) {
    return late_context(device);
  }
  thread_local Contexts contexts;
  for (Context& context : contexts.all) {
    if (context.device == device) {
      return context;
    }
  }
  contexts.all.emplace_back().device = device;
  return contexts.all.back();
}

}  // namespace

Context& context_for(Device device) {
  if (last == nullptr || !(last->device == device)) {
    last = &find_context(device);
  }
  return *last;
}

void refuse_gpu(const char* name, Device device) {
  fail<DeviceError>(
      "{}: this kernel runs on CPUs only, and its tensors are on {}; move them with .to(\"cpu\"), or write "
      "run(OnCuda, ...) and take kCpuOnly away",
      name, device);
}

}  // namespace tandem::inline v0::kernels
