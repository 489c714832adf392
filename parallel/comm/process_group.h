#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include <tandem/core/export.h>
#include <tandem/parallel/comm/backend.h>
#include <tandem/parallel/comm/collective.h>
#include <tandem/parallel/comm/planned_all_reduce.h>
#include <tandem/parallel/comm/work.h>
#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::parallel {

/// How a group behaves.
struct ProcessGroupOptions {
  /// From a call to the CommError that says who did not come; more than 0, and a year where it is more.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
};

/// The ranks that compute together, as one of them sees them: one object per rank. Names and argument order are
/// torch.distributed's. All ranks make the same calls in the same order; before anything moves, the calls are compared
/// (kind, dtype, shape, reduce op, root, number), and if they differ every rank throws a CommError with all of them
/// side by side.
///
/// With `async_op` a call returns at once, and the group's own thread does it, in the order of calls: wait() before
/// touching its tensors. Without, it is done when it returns, and the Work is there for uniformity. On GPUs all of this
/// is in the order of streams, see Work: a call is ordered after the caller's current stream, and that after the call.
///
/// Tensors are dense or not (then they are packed), of any dtype, empty ones included, on a device that the backend
/// takes. Nothing is differentiated: what is written counts as changed in place, so that backward() notices, leaves
/// that require a gradient may be written (as under NoGradGuard), results of recorded ops only under NoGradGuard.
///
/// After any CommError the group is dead: all later calls, on every rank, throw at once, saying what was first. Errors
/// in a rank's own arguments (ShapeError, DTypeError, ConfigError, AutogradError) come before the other ranks know of
/// the call, and leave the group as it is.
///
/// Thread safety: any thread may call, but the order of calls must be the same on all ranks, so it is normally one.
class TANDEM_API ProcessGroup {
 public:
  /// One over `backend`; all its ranks make one. Throws ConfigError for a timeout of 0.
  explicit ProcessGroup(std::unique_ptr<Backend> backend, const ProcessGroupOptions& options = {});
  /// Finishes what is on its way. While an exception unwinds this rank, the others learn that it is lost instead.
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  /// Of the caller, from 0.
  int rank() const noexcept;
  /// How many ranks there are.
  int size() const noexcept;
  /// What carries the data: "local".
  std::string_view backend() const noexcept;
  /// See ProcessGroupOptions.
  std::chrono::milliseconds timeout() const;
  /// For later calls. Throws ConfigError unless it is more than 0.
  void set_timeout(std::chrono::milliseconds timeout);

  /// Everybody's `tensor` becomes that of rank `src`.
  Work broadcast(const Tensor& tensor, int src, bool async_op = false);
  /// Everybody's `tensor` becomes the reduction of all: the same bits everywhere.
  Work all_reduce(const Tensor& tensor, ReduceOp op = ReduceOp::sum, bool async_op = false);
  /// The same on rank `dst` alone; the others' tensors stay as they are.
  Work reduce(const Tensor& tensor, int dst, ReduceOp op = ReduceOp::sum, bool async_op = false);
  /// tensor_list[r] becomes rank r's `tensor`; all have one shape and dtype.
  Work all_gather(const std::vector<Tensor>& tensor_list, const Tensor& tensor, bool async_op = false);
  /// output[r] becomes rank r's `input`: `output` is [size(), input's shape...], or joined along the first dimension.
  Work all_gather_into_tensor(const Tensor& output, const Tensor& input, bool async_op = false);
  /// Everybody's `output` becomes the reduction of all ranks' input_list[rank()].
  Work reduce_scatter(const Tensor& output, const std::vector<Tensor>& input_list, ReduceOp op = ReduceOp::sum,
                      bool async_op = false);
  /// The same for `input` [size(), output's shape...], or joined along the first dimension.
  Work reduce_scatter_tensor(const Tensor& output, const Tensor& input, ReduceOp op = ReduceOp::sum,
                             bool async_op = false);
  /// On rank `dst`, gather_list[r] becomes rank r's `tensor`; the others give no list.
  Work gather(const Tensor& tensor, const std::vector<Tensor>& gather_list = {}, int dst = 0, bool async_op = false);
  /// Everybody's `tensor` becomes rank src's scatter_list[rank()]; the others give no list.
  Work scatter(const Tensor& tensor, const std::vector<Tensor>& scatter_list = {}, int src = 0, bool async_op = false);
  /// output_list[r] becomes rank r's input_list[rank()]; all have one shape and dtype.
  Work all_to_all(const std::vector<Tensor>& output_list, const std::vector<Tensor>& input_list, bool async_op = false);
  /// The same for equal parts of the first dimension, whose size is a multiple of size().
  Work all_to_all_single(const Tensor& output, const Tensor& input, bool async_op = false);
  /// To one recv() with this tag on rank `dst`. It returns once `tensor` may be changed, received or not.
  void send(const Tensor& tensor, int dst, int tag = 0);
  /// Fills `tensor` with what rank `src` sent with this tag, first come first served; another dtype or shape is a
  /// mismatch.
  void recv(const Tensor& tensor, int src, int tag = 0);
  /// send() on the group's thread.
  Work isend(const Tensor& tensor, int dst, int tag = 0);
  /// recv() on the group's thread. What is called later waits for it, but for sends, up to the next collective.
  Work irecv(const Tensor& tensor, int src, int tag = 0);
  /// Returns when all ranks are here.
  Work barrier(bool async_op = false);

  /// A group of some of these ranks, which are numbered in ascending order there. All ranks of this group call it with
  /// the same `ranks`; those who are not among them get null. It has this group's timeout.
  std::unique_ptr<ProcessGroup> new_group(std::vector<int> ranks);

  /// An all-reduce that is repeated: its ranks are compared once, now, and then no more, and starting it allocates
  /// nothing. `memory` is dense; it is what the reducer of gradients uses, on ranges of a ParameterStore. A collective.
  PlannedAllReduce plan_all_reduce(const tandem::detail::View& memory, ReduceOp op = ReduceOp::sum);

  /// Returns when all that was started is done, on GPUs as well: the host waits. Throws the CommError of a call that
  /// nobody has waited for.
  void wait_all();
  /// Ends all calls, on every rank, those to come as well, with a CommError that gives `reason`. From any thread.
  void abort(std::string_view reason);

  /// Used by DistributedDataParallel, which may outlive the group.
  const std::shared_ptr<detail::CommQueue>& queue() const noexcept { return queue_; }

 private:
  std::shared_ptr<detail::CommQueue> queue_;
  int exceptions_;  // that were on their way when it was made
};

}  // namespace tandem::inline v0::parallel
