#include <tandem/parallel/comm/combine.h>

#include <algorithm>

#include <tandem/kernels/combine.h>
#include <tandem/kernels/copy.h>
#include <tandem/tensor/raw.h>

namespace tandem::inline v0::parallel {

namespace {

// The two enumerations have equal names in equal order.
kernels::CombineOp combine_op(ReduceOp op) {
  static_assert(static_cast<int>(ReduceOp::avg) == static_cast<int>(kernels::CombineOp::avg) &&
                static_cast<int>(ReduceOp::product) == static_cast<int>(kernels::CombineOp::product));
  return static_cast<kernels::CombineOp>(op);
}

}  // namespace

void combine(const Collective& call, Device device, std::span<const void* const> in, std::span<void* const> out,
             std::int64_t count, int ranks) {
  kernels::launch(kernels::context_for(device),
                  kernels::Combine{.op = combine_op(call.op),
                                   .dtype = call.dtype,
                                   .in = in.data(),
                                   .ins = static_cast<int>(in.size()),
                                   .out = out.data(),
                                   .outs = static_cast<int>(out.size()),
                                   .count = count,
                                   .divisor = ranks > 0 ? ranks : static_cast<int>(in.size())});
}

void convert(DType from, const void* in, DType to, void* out, std::int64_t count) {
  kernels::launch(kernels::context_for(Device()), kernels::Copy{.in_dtype = from,
                                                                .out_dtype = to,
                                                                .loop = {1, {count}},
                                                                .out = {out, {1}},
                                                                .in = {const_cast<void*>(in), {1}}});
}

Slice slice_of(int rank, int ranks, std::int64_t numel) {
  constexpr std::int64_t kGrain = 64;
  const std::int64_t grains = (numel + kGrain - 1) / kGrain;
  const auto begin_of = [&](int r) { return std::min(numel, grains * r / ranks * kGrain); };
  return {begin_of(rank), begin_of(rank + 1) - begin_of(rank)};
}

}  // namespace tandem::inline v0::parallel
