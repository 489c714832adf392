#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <tandem/core/warning.h>

namespace tandem::test {

/// Collects the warnings of all threads during its lifetime.
class Warnings {
 public:
  Warnings() {
    // A thread may still run the handler when this object is gone.
    set_warning_handler([heard = heard_](const std::string& text) {
      const std::lock_guard lock(heard->mutex);
      heard->texts.push_back(text);
    });
  }
  ~Warnings() { set_warning_handler({}); }
  Warnings(const Warnings&) = delete;
  Warnings& operator=(const Warnings&) = delete;
  std::vector<std::string> texts() {
    const std::lock_guard lock(heard_->mutex);
    return heard_->texts;
  }

 private:
  struct Heard {
    std::mutex mutex;
    std::vector<std::string> texts;
  };
  std::shared_ptr<Heard> heard_ = std::make_shared<Heard>();
};

}  // namespace tandem::test
