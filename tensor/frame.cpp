#include <tandem/tensor/frame.h>

#include <atomic>
#include <unordered_map>

#include <tandem/core/check.h>
#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::core {

struct Frame::Bindings {
  std::unordered_map<const void*, Tensor> values;
  std::atomic<bool> active{false};
};

Frame::Frame(ReplicaInfo replica) : bindings_(std::make_unique<Bindings>()), replica_(replica) {}
Frame::~Frame() = default;

void Frame::bind(const Tensor& slot, const Tensor& value) {
  check<ConfigError>(slot.defined() && slot.unresolved()->is_slot,
                     "Frame::bind: only parameters and buffers of a module can be bound");
  check<ConfigError>(value.defined() && !value.unresolved()->is_slot,
                     "Frame::bind: the value must be a plain tensor, not itself a slot");
  bindings_->values.insert_or_assign(slot.unresolved(), value);
}

std::size_t Frame::size() const noexcept { return bindings_->values.size(); }

void* Frame::resolve(void* slot) const {
  for (const Frame* frame = this; frame != nullptr; frame = frame->outer_) {
    if (const auto found = frame->bindings_->values.find(slot); found != frame->bindings_->values.end()) {
      return found->second.unresolved();
    }
  }
  return slot;
}

FrameScope::FrameScope(Frame& frame) : frame_(frame) {
  check<ConfigError>(!frame.bindings_->active.exchange(true),
                     "Frame: already active; each replica thread needs a frame of its own");
  frame.outer_ = thread_state().frame;
  thread_state().frame = &frame;
}

FrameScope::~FrameScope() {
  thread_state().frame = frame_.outer_;
  frame_.outer_ = nullptr;
  frame_.bindings_->active = false;
}

}  // namespace tandem::inline v0::core
