#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

#include <tandem/core/thread_state.h>
#include <tandem/kernels/launch.h>

namespace tandem::test {

/// Copies every launch of the threads that it observes, like a captured step.
class Recorder final : public kernels::LaunchObserver {
 public:
  struct Launch {
    std::string name;
    std::vector<std::byte> args;
    Device device;
    void (*replay)(kernels::Context&, const void*);
  };

  void on_launch(kernels::Context& context, const kernels::LaunchRecord& record) override {
    const auto* bytes = static_cast<const std::byte*>(record.args);
    const std::lock_guard lock(mutex_);  // helpers of a backward pass launch too
    launches_.push_back({record.name, {bytes, bytes + record.args_bytes}, context.device, record.replay});
  }

  const std::vector<Launch>& launches() const { return launches_; }

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const Launch& launch : launches_)
      names.push_back(launch.name);
    return names;
  }

  void replay() const {
    for (const Launch& launch : launches_)
      launch.replay(kernels::context_for(launch.device), launch.args.data());
  }

 private:
  std::mutex mutex_;
  std::vector<Launch> launches_;
};

/// During the scope `observer` sees this thread's launches.
class ObserverScope {
 public:
  explicit ObserverScope(kernels::LaunchObserver* observer) : saved_(core::thread_state().observer) {
    core::thread_state().observer = observer;
  }
  ~ObserverScope() { core::thread_state().observer = saved_; }
  ObserverScope(const ObserverScope&) = delete;
  ObserverScope& operator=(const ObserverScope&) = delete;

 private:
  kernels::LaunchObserver* saved_;
};

/// The names of the kernels that `body` launches, in order.
template <class Body>
std::vector<std::string> launches_of(Body&& body) {
  Recorder recorder;
  const ObserverScope scope(&recorder);
  body();
  return recorder.names();
}

}  // namespace tandem::test
