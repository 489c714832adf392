#include "fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <new>

// EMULATED_GPU_UCONTEXT selects the portable implementation on x86-64, too.
#if !defined(__x86_64__) || defined(EMULATED_GPU_UCONTEXT)
#include <ucontext.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace emulated_gpu::detail {

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
constexpr std::size_t kStack = 256 << 10;  // frames are larger in such builds
#else
constexpr std::size_t kStack = 64 << 10;
#endif

// Inaccessible memory below the stack, much larger than a page, so that no large frame can reach past it.
constexpr std::size_t kGuard = 1 << 20;

thread_local Fiber* running = nullptr;

// The stack of the OS thread, to which fibers return.
struct Home {
  void* context = nullptr;
  void* fake_stack = nullptr;
  const void* stack = nullptr;
  std::size_t stack_size = 0;
  void* tsan_fiber = nullptr;
};
thread_local Home home;

}  // namespace

#if defined(__x86_64__) && !defined(EMULATED_GPU_UCONTEXT)

// Saves the registers that a call must preserve, and switches stacks. Floating-point modes are shared by all fibers.
extern "C" void emulated_gpu_switch(void** from, void* to);
asm(R"(
.text
.globl emulated_gpu_switch
.hidden emulated_gpu_switch
.type emulated_gpu_switch, @function
emulated_gpu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emulated_gpu_switch, .-emulated_gpu_switch
)");

namespace {

void* new_context(char* stack, void (*entry)()) {
  // The values that emulated_gpu_switch() pops: six registers, the address to jump to, and an unused return address.
  auto* top = reinterpret_cast<void**>(stack + kStack) - 8;
  std::memset(top, 0, 8 * sizeof(void*));
  top[6] = reinterpret_cast<void*>(entry);
  return top;
}
void delete_context(void*) {}
void switch_context(void** from, void* to) { emulated_gpu_switch(from, to); }

}  // namespace

#else

namespace {

void* new_context(char* stack, void (*entry)()) {
  auto* context = new ucontext_t;
  getcontext(context);
  context->uc_stack.ss_sp = stack;
  context->uc_stack.ss_size = kStack;
  context->uc_link = nullptr;
  makecontext(context, entry, 0);
  return context;
}
void delete_context(void* context) { delete static_cast<ucontext_t*>(context); }
void switch_context(void** from, void* to) {
  static thread_local ucontext_t own;  // the context of the OS thread
  if (*from == nullptr) {
    *from = &own;
  }
  swapcontext(static_cast<ucontext_t*>(*from), static_cast<ucontext_t*>(to));
}

}  // namespace

#endif

Fiber::Fiber(void (*entry)()) : entry_(entry) {
  void* memory = mmap(nullptr, kGuard + kStack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    throw std::bad_alloc();
  }
  mapping_ = static_cast<char*>(memory);
  mprotect(mapping_ + kGuard, kStack, PROT_READ | PROT_WRITE);
  context_ = new_context(mapping_ + kGuard, &Fiber::start);
#if defined(__SANITIZE_THREAD__)
  tsan_fiber_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#if defined(__SANITIZE_THREAD__)
  __tsan_destroy_fiber(tsan_fiber_);
#endif
  delete_context(context_);
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(mapping_ + kGuard, kStack);
#endif
  munmap(mapping_, kGuard + kStack);
}

void Fiber::restart() {
  delete_context(context_);
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(mapping_ + kGuard, kStack);
  fake_stack_ = nullptr;
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_destroy_fiber(tsan_fiber_);
  tsan_fiber_ = __tsan_create_fiber(0);
#endif
  context_ = new_context(mapping_ + kGuard, &Fiber::start);
}

void Fiber::start() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &home.stack, &home.stack_size);
#endif
  running->entry_();
}

void Fiber::resume() {
  running = this;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&home.fake_stack, mapping_ + kGuard, kStack);
#endif
#if defined(__SANITIZE_THREAD__)
  home.tsan_fiber = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(tsan_fiber_, 0);
#endif
  switch_context(&home.context, context_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(home.fake_stack, nullptr, nullptr);
#endif
  running = nullptr;
}

void Fiber::suspend() {
  Fiber* self = running;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&self->fake_stack_, home.stack, home.stack_size);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(home.tsan_fiber, 0);
#endif
  switch_context(&self->context_, home.context);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(self->fake_stack_, &home.stack, &home.stack_size);
#endif
}

Fiber* Fiber::current() { return running; }

bool Fiber::overflowed(const void* address) {
  const auto* byte = static_cast<const char*>(address);
  return running != nullptr && byte >= running->mapping_ && byte < running->mapping_ + kGuard;
}

}  // namespace emulated_gpu::detail
