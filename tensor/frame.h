#pragma once

#include <cstddef>
#include <memory>

#include <tandem/core/device.h>
#include <tandem/core/export.h>

namespace tandem::inline v0 {

class Tensor;

namespace core {

/// Which replica of a module a thread computes.
struct ReplicaInfo {
  int index = 0;  // from 0
  int count = 1;  // of all replicas
  Device device;  // where it computes
};

/// What parameter and buffer slots mean on one thread for a while: a replica. A module is never cloned; while a frame
/// is active, every use of a bound slot is a use of the tensor that stands in for it. Frames stack: what the inner one
/// does not bind, the outer one may.
class TANDEM_API Frame {
 public:
  explicit Frame(ReplicaInfo replica = {});
  ~Frame();
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

  /// From now on `slot` (a parameter or buffer, else ConfigError) means `value` wherever this frame is active.
  void bind(const Tensor& slot, const Tensor& value);
  /// Whose frame it is.
  const ReplicaInfo& replica() const noexcept { return replica_; }
  /// Number of slots bound here.
  std::size_t size() const noexcept;

  /// The TensorImpl that `slot`, a TensorImpl, stands for in this frame and those around it.
  void* resolve(void* slot) const;

 private:
  friend class FrameScope;
  struct Bindings;
  std::unique_ptr<Bindings> bindings_;
  ReplicaInfo replica_;
  const Frame* outer_ = nullptr;
};

/// Makes a frame active on the calling thread for a scope. A frame is active on one thread at a time (ConfigError).
class TANDEM_API FrameScope {
 public:
  [[nodiscard]] explicit FrameScope(Frame& frame);
  ~FrameScope();
  FrameScope(const FrameScope&) = delete;
  FrameScope& operator=(const FrameScope&) = delete;

 private:
  Frame& frame_;
};

}  // namespace core
}  // namespace tandem::inline v0
