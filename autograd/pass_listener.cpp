#include <tandem/autograd/pass_listener.h>

#include <utility>

namespace tandem::inline v0::autograd {

void PassListeners::end() {
  for (PassListener*& listener : listeners_) {
    PassListener* told = std::exchange(listener, nullptr);  // one that throws is not told again
    told->on_pass_end();
    listener = told;
  }
  for (PassListener*& listener : listeners_) {
    std::exchange(listener, nullptr)->on_pass_done();
  }
}

void PassListeners::fail(const std::exception& failure) {
  for (PassListener* listener : listeners_) {
    if (listener != nullptr) {
      listener->on_pass_failed(failure);
    }
  }
}

}  // namespace tandem::inline v0::autograd
