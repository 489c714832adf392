#include <tandem/parallel/comm/nccl/calls.h>

#include <cstddef>

namespace tandem::inline v0::parallel::nccl {

namespace {

using Kind = CollectiveKind;

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return ncclFloat32;
    case DType::f64: return ncclFloat64;
    case DType::bf16: return ncclBfloat16;
    case DType::f16: return ncclFloat16;
    case DType::i64: return ncclInt64;
    case DType::i32: return ncclInt32;
    case DType::u8:
    case DType::boolean: break;
  }
  return ncclUint8;
}

// A bool is a byte that holds 0 or 1.
ncclRedOp_t op_of(ReduceOp op, DType dtype) {
  const bool boolean = dtype == DType::boolean;
  switch (op) {
    case ReduceOp::sum: return boolean ? ncclMax : ncclSum;
    case ReduceOp::avg: return ncclAvg;
    case ReduceOp::min: return ncclMin;
    case ReduceOp::max: return ncclMax;
    case ReduceOp::product: break;
  }
  return boolean ? ncclMin : ncclProd;
}

/// Sends and receives of one rank, of `buffers.numel` elements each.
class Parts {
 public:
  Parts(const Functions& nccl, ncclComm_t comm, CUstream_st* stream, const Collective& call, const Buffers& buffers)
      : nccl_(nccl),
        comm_(comm),
        stream_(stream),
        type_(type_of(call.dtype)),
        count_(static_cast<std::size_t>(buffers.numel)),
        bytes_(count_ * item_size(call.dtype)),
        in_(static_cast<const std::byte*>(buffers.in)),
        out_(static_cast<std::byte*>(buffers.out)) {}

  void send(int part, int to) {
    if (result_ == ncclSuccess) {
      note(nccl_.ncclSend(in_ + static_cast<std::size_t>(part) * bytes_, count_, type_, to, comm_, stream_));
    }
  }
  void receive(int part, int from) {
    if (result_ == ncclSuccess) {
      note(nccl_.ncclRecv(out_ + static_cast<std::size_t>(part) * bytes_, count_, type_, from, comm_, stream_));
    }
  }
  ncclResult_t result() const { return result_; }

 private:
  void note(ncclResult_t result) { result_ = result == ncclInProgress ? ncclSuccess : result; }

  const Functions& nccl_;
  ncclComm_t comm_;
  CUstream_st* stream_;
  ncclDataType_t type_;
  std::size_t count_;
  std::size_t bytes_;
  const std::byte* in_;
  std::byte* out_;
  ncclResult_t result_ = ncclSuccess;
};

// A rank also sends to and receives from itself: NCCL copies that part.
ncclResult_t issue_parts(Parts parts, int rank, int size, const Collective& call) {
  const bool is_root = rank == call.root;
  if (call.kind == Kind::gather) {
    parts.send(0, call.root);
  } else if (call.kind == Kind::scatter) {
    parts.receive(0, call.root);
  }
  for (int r = 0; r < size; ++r) {
    if (call.kind == Kind::all_to_all || (call.kind == Kind::scatter && is_root)) {
      parts.send(r, r);
    }
    if (call.kind == Kind::all_to_all || (call.kind == Kind::gather && is_root)) {
      parts.receive(r, r);
    }
  }
  return parts.result();
}

}  // namespace

ncclResult_t issue(const Functions& nccl, ncclComm_t comm, CUstream_st* stream, int rank, int size,
                   const Collective& call, const Buffers& buffers) {
  const auto count = static_cast<std::size_t>(buffers.numel);
  const ncclDataType_t type = type_of(call.dtype);
  const ncclRedOp_t op = op_of(call.op, call.dtype);
  switch (call.kind) {
    case Kind::all_reduce: return nccl.ncclAllReduce(buffers.in, buffers.out, count, type, op, comm, stream);
    case Kind::reduce: return nccl.ncclReduce(buffers.in, buffers.out, count, type, op, call.root, comm, stream);
    case Kind::broadcast: {
      void* const memory = rank == call.root ? const_cast<void*>(buffers.in) : buffers.out;
      return nccl.ncclBroadcast(memory, memory, count, type, call.root, comm, stream);
    }
    case Kind::all_gather: return nccl.ncclAllGather(buffers.in, buffers.out, count, type, comm, stream);
    case Kind::reduce_scatter: return nccl.ncclReduceScatter(buffers.in, buffers.out, count, type, op, comm, stream);
    case Kind::gather:
    case Kind::scatter:
    case Kind::all_to_all: return issue_parts(Parts(nccl, comm, stream, call, buffers), rank, size, call);
    case Kind::send:
    case Kind::recv:
    case Kind::barrier:
    case Kind::new_group: break;
  }
  return ncclInvalidUsage;  // this kind never goes to NCCL
}

}  // namespace tandem::inline v0::parallel::nccl
