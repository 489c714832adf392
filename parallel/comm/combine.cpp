#include <tandem/parallel/comm/combine.h>

#include <tandem/kernels/combine.h>
#include <tandem/tensor/raw.h>

namespace tandem::inline v0::parallel {

namespace {

// The same names in both, in the same order.
kernels::CombineOp combine_op(ReduceOp op) {
  static_assert(static_cast<int>(ReduceOp::avg) == static_cast<int>(kernels::CombineOp::avg) &&
                static_cast<int>(ReduceOp::product) == static_cast<int>(kernels::CombineOp::product));
  return static_cast<kernels::CombineOp>(op);
}

}  // namespace

void combine(const Collective& call, Device device, std::span<const void* const> in, std::span<void* const> out,
             std::int64_t count) {
  kernels::launch(kernels::context_for(device), kernels::Combine{.op = combine_op(call.op),
                                                                 .dtype = call.dtype,
                                                                 .in = in.data(),
                                                                 .ins = static_cast<int>(in.size()),
                                                                 .out = out.data(),
                                                                 .outs = static_cast<int>(out.size()),
                                                                 .count = count});
}

}  // namespace tandem::inline v0::parallel
