#include <tandem/autograd/pass_listener.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <unordered_set>
#include <utility>

namespace tandem::inline v0::autograd {

namespace {

std::uint64_t next_number() noexcept {
  static std::atomic<std::uint64_t> next{0};
  return next.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

PassListener::PassListener() noexcept : number_(next_number()) {}

void PassListeners::add(PassListener& listener) {
  const auto before = [](const PassListener* a, const PassListener* b) { return a->number_ < b->number_; };
  listeners_.insert(std::upper_bound(listeners_.begin(), listeners_.end(), &listener, before), &listener);
}

void PassListeners::begin() {
  for (PassListener* listener : listeners_) {
    listener->on_pass_begin();
  }
}

void PassListeners::end() {
  for (PassListener*& listener : listeners_) {
    PassListener* told = std::exchange(listener, nullptr);  // a listener that throws is not called again
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
      try {
        listener->on_pass_failed(failure);
      } catch (...) {  // the first error is reported, and the other listeners must be notified too
      }
    }
  }
}

// Parts of the graph may belong to a pass of another thread; this function only reads them.
void refuse_backward(Node& root, const std::exception& refusal) {
  std::vector<Node*> found{&root};
  std::unordered_set<Node*> seen{&root};
  for (std::size_t next = 0; next < found.size(); ++next) {
    Node& node = *found[next];
    if (node.watches_passes()) {
      node.on_pass(&refusal);
    }
    for (std::uint32_t i = 0; i < node.num_edges(); ++i) {
      if (Node* target = node.edge(i).node.get(); target != nullptr && seen.insert(target).second) {
        found.push_back(target);
      }
    }
  }
}

}  // namespace tandem::inline v0::autograd
