#pragma once

#include <tandem/core/dtype.h>
#include <tandem/kernels/launch.h>
#include <tandem/kernels/loop.h>

namespace tandem::inline v0::kernels {

/// out = value, converted to `dtype`. Integers up to 2^53 are exact.
struct Fill {
  static constexpr const char* kName = "fill";
  DType dtype;
  Loop loop;
  Operand out;
  double value = 0;
};
void run(OnCpu, Context& context, const Fill& kernel);
void run(OnCuda, Context& context, const Fill& kernel);

/// out[i] = start + i * step over `count` dense elements.
struct Arange {
  static constexpr const char* kName = "arange";
  DType dtype;
  void* out;
  std::int64_t count;
  double start;
  double step;
};
void run(OnCpu, Context& context, const Arange& kernel);
void run(OnCuda, Context& context, const Arange& kernel);

/// `count` dense elements from start to end, both included, equally far apart; counted from the nearer end, so that
/// both are exact.
struct Linspace {
  static constexpr const char* kName = "linspace";
  DType dtype;
  void* out;
  std::int64_t count;
  double start;
  double end;
};
void run(OnCpu, Context& context, const Linspace& kernel);
void run(OnCuda, Context& context, const Linspace& kernel);

/// out = in, converted from in_dtype to out_dtype as convert() in math.h does, or out += in.
/// No overlap.
struct Copy {
  static constexpr const char* kName = "copy";
  DType in_dtype;
  DType out_dtype;
  Accumulate accumulate = Accumulate::no;
  Loop loop;
  Operand out;
  Operand in;
};
void run(OnCpu, Context& context, const Copy& kernel);
void run(OnCuda, Context& context, const Copy& kernel);

/// `bytes` from one device to another, of which at least one is a GPU; launched on the GPU, the one that receives if
/// both are. From the host it returns once `in` may be changed, to the host once `out` is there.
struct Transfer {
  static constexpr const char* kName = "transfer";
  Device out_device;
  Device in_device;
  void* out;
  const void* in;
  std::int64_t bytes;
  bool wait = true;         // else the host's memory is left alone until the stream has got here: it is page-locked
  bool orders_gpus = true;  // else who launches has brought the streams of both GPUs into their order
};
void run(OnCpu, Context& context, const Transfer& kernel);
void run(OnCuda, Context& context, const Transfer& kernel);

// Indices have been looked at before a kernel runs on a CPU. Nobody can have done so on a GPU: there the kernels of the
// rest of this file do, report one out of range as `op`'s (a literal), and leave its elements out.

/// Along the middle dimension of a dense [outer, size, inner] input: out[o, i, :] = in[o, index[i], :], for a dense
/// [outer, count, inner] output. Elements are moved as bytes; zeros stand where an index is out of range.
struct IndexSelect {
  static constexpr const char* kName = "index_select";
  void* out;
  const void* in;
  const std::int64_t* index;
  std::int64_t outer, size, count;
  std::int64_t inner_bytes;
  const char* op = kName;
};
void run(OnCpu, Context& context, const IndexSelect& kernel);
void run(OnCuda, Context& context, const IndexSelect& kernel);

/// Its gradient: out[o, index[i], :] += in[o, i, :] in the order of i, but where index[i] is `skip`. `out` is dense
/// [outer, size, inner].
struct IndexAdd {
  static constexpr const char* kName = "index_add";
  DType dtype;
  void* out;
  const void* in;
  const std::int64_t* index;
  std::int64_t outer, size, count, inner;
  std::int64_t skip = -1;
  const char* op = kName;
};
void run(OnCpu, Context& context, const IndexAdd& kernel);
void run(OnCuda, Context& context, const IndexAdd& kernel);

/// out[p] = in[p, but index[p] along one dimension] for every position p of `loop`: `in` has stride 0 along that
/// dimension in the loop; `dim_stride` (elements) is what it really has there, over `dim_size` elements.
struct Gather {
  static constexpr const char* kName = "gather";
  std::int64_t item_size;
  std::int64_t dim_stride;
  std::int64_t dim_size;
  const char* op = kName;
  Loop loop;
  Operand out;
  Operand index;  // i64
  Operand in;
};
void run(OnCpu, Context& context, const Gather& kernel);
void run(OnCuda, Context& context, const Gather& kernel);

/// The other way round: out[p, but index[p] along one dimension] += in[p]. The loop's last dimension is that one, which
/// is walked in order: sums of repeated indices don't depend on timing.
struct ScatterAdd {
  static constexpr const char* kName = "scatter_add";
  DType dtype;
  std::int64_t dim_stride;
  std::int64_t dim_size;
  const char* op = kName;
  Loop loop;
  Operand out;
  Operand index;  // i64
  Operand in;
};
void run(OnCpu, Context& context, const ScatterAdd& kernel);
void run(OnCuda, Context& context, const ScatterAdd& kernel);

}  // namespace tandem::inline v0::kernels
