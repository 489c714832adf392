#pragma once

#include <memory>
#include <vector>

#include <tandem/parallel/comm/backend.h>
#include <tandem/parallel/comm/operation.h>
#include <tandem/tensor/tensor.h>

// Internal: from a user's tensors to an operation.

namespace tandem::inline v0::parallel::detail {

/// Checks what this rank gives to one call, and makes its operation. Nothing is touched before finish(), so that a
/// wrong argument leaves all as it was.
class CallBuilder {
 public:
  /// `name` is the public function's, for messages. Throws CaptureError while this thread records a step.
  CallBuilder(const Backend& backend, CollectiveKind kind, const char* name);
  /// `tensor` gives the dtype, device and shape that ranks compare.
  CallBuilder(const Backend& backend, CollectiveKind kind, const char* name, const Tensor& tensor);

  /// Throws ConfigError unless there is such a rank; `argument` is its name.
  void set_root(const char* argument, int rank);
  /// The same for the other side of a send or recv, which is not this rank.
  void set_peer(const char* argument, int rank, int tag);
  /// Throws DTypeError where elements cannot be reduced so.
  void set_op(ReduceOp op);
  bool is_root() const { return operation_->call.root == backend_.rank(); }

  void reads(const Tensor& tensor);
  void writes(const Tensor& tensor);
  /// Both, in one memory.
  void updates(const Tensor& tensor);
  /// One per rank, like the call's tensor.
  void reads(const char* argument, const std::vector<Tensor>& list);
  void writes(const char* argument, const std::vector<Tensor>& list);
  /// All ranks' parts in one tensor, each like the call's tensor.
  void reads_joined(const char* argument, const Tensor& tensor);
  void writes_joined(const char* argument, const Tensor& tensor);
  /// What one rank gives or gets, if that is not the call's whole tensor.
  void set_part(std::int64_t numel) { operation_->buffers.numel = numel; }

  /// Throws ConfigError where the backend cannot, or what is written overlaps with what is read.
  std::shared_ptr<Operation> finish();

 private:
  void check_like(const char* argument, const Tensor& tensor) const;
  void check_joined(const char* argument, const Tensor& tensor) const;
  void check_list(const char* argument, const std::vector<Tensor>& list) const;
  void check_apart() const;
  void note_written(const Tensor& tensor);
  void take(const View& view);
  void give(const View& view);
  View dense(const View& view) const;
  View joined() const;
  View part(const View& joined, int rank) const;

  const Backend& backend_;
  const char* name_;
  Device device_;
  std::shared_ptr<Operation> operation_;
  std::vector<View> written_;
};

}  // namespace tandem::inline v0::parallel::detail
