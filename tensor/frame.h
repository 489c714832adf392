#pragma once

#include <cstddef>
#include <memory>

#include <tandem/core/device.h>
#include <tandem/core/export.h>

namespace tandem::inline v0 {

class Tensor;

namespace core {

/// The replica of a module that a thread computes.
struct ReplicaInfo {
  int index = 0;  // number of the replica, from 0
  int count = 1;  // number of replicas
  Device device;  // device that computes this replica
};

/// Binds parameter and buffer slots to other tensors on one thread for a while; this is a replica. A module is never
/// cloned: while a frame is active, every use of a bound slot uses the tensor bound to it. Frames stack: a slot that
/// the inner frame does not bind may be bound by the outer one.
class TANDEM_API Frame {
 public:
  explicit Frame(ReplicaInfo replica = {});
  ~Frame();
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

  /// Makes `slot` mean `value` wherever this frame is active. Throws ConfigError unless `slot` is a parameter or
  /// buffer.
  void bind(const Tensor& slot, const Tensor& value);
  /// The replica that this frame represents.
  const ReplicaInfo& replica() const noexcept { return replica_; }
  /// Number of slots bound in this frame.
  std::size_t size() const noexcept;

  /// Resolves `slot`, a TensorImpl, through this frame and the frames around it; returns the bound TensorImpl.
  void* resolve(void* slot) const;

 private:
  friend class FrameScope;
  struct Bindings;
  std::unique_ptr<Bindings> bindings_;
  ReplicaInfo replica_;
  const Frame* outer_ = nullptr;
};

/// Makes a frame active on the calling thread for a scope. Throws ConfigError if the frame is active already: a frame
/// is active on one thread at a time.
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
