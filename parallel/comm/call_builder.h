#pragma once

#include <memory>
#include <vector>

#include <tandem/parallel/comm/backend.h>
#include <tandem/parallel/comm/comm_queue.h>
#include <tandem/tensor/tensor.h>

// Internal: turns a user's tensors into an operation.

namespace tandem::inline v0::parallel::detail {

/// Checks this rank's arguments to one call and builds its operation. Nothing is modified before finish(), so a wrong
/// argument has no effect.
class CallBuilder {
 public:
  /// `name` is the public function's, for messages. Throws CaptureError while this thread records a step.
  CallBuilder(const Backend& backend, CollectiveKind kind, const char* name);
  /// `tensor` determines the dtype, device and shape that ranks compare.
  CallBuilder(const Backend& backend, CollectiveKind kind, const char* name, const Tensor& tensor);

  /// Throws ConfigError unless `rank` exists. `argument` is its name in messages.
  void set_root(const char* argument, int rank);
  /// Sets the other side of a send or recv. Throws ConfigError unless that rank exists and is not this one.
  void set_peer(const char* argument, int rank, int tag);
  /// Throws DTypeError if the elements cannot be reduced by `op`.
  void set_op(ReduceOp op);
  bool is_root() const { return operation_->call.root == backend_.rank(); }

  void reads(const Tensor& tensor);
  void writes(const Tensor& tensor);
  /// The call reads and writes `tensor` in place.
  void updates(const Tensor& tensor);
  /// One tensor per rank, each like the call's tensor.
  void reads(const char* argument, const std::vector<Tensor>& list);
  void writes(const char* argument, const std::vector<Tensor>& list);
  /// All ranks' parts in one tensor, each part like the call's tensor.
  void reads_joined(const char* argument, const Tensor& tensor);
  void writes_joined(const char* argument, const Tensor& tensor);
  /// Sets the number of elements that one rank gives or gets, if it is not the call's whole tensor.
  void set_part(std::int64_t numel) { operation_->buffers.numel = numel; }

  /// Throws ConfigError if the backend refuses the call, or if written memory overlaps with read memory.
  std::shared_ptr<Operation> finish();

 private:
  void check_kin(const char* argument, const Tensor& tensor) const;
  void check_like(const char* argument, const Tensor& tensor) const;
  void check_joined(const char* argument, const Tensor& tensor) const;
  void check_list(const char* argument, const std::vector<Tensor>& list) const;
  void check_apart() const;
  void note_written(const Tensor& tensor);
  void take(const Tensor& tensor);
  void give(const Tensor& tensor);
  static View dense(const View& view);
  View joined() const;
  View part(const View& joined, int rank) const;

  const Backend& backend_;
  const char* name_;
  Device device_;
  std::shared_ptr<Operation> operation_;
  std::vector<View> written_;
};

}  // namespace tandem::inline v0::parallel::detail
