#pragma once

#include <cstdint>

#include <tandem/core/device.h>
#include <tandem/core/dtype.h>
#include <tandem/kernels/kernel.h>
#include <tandem/kernels/loop.h>

namespace tandem::inline v0::kernels {

/// out = in, or out += in, converted from in_dtype to out_dtype by convert() in math.h. out and in must not overlap.
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

/// Copies `bytes` from one device to another; at least one of them is a GPU. The copy is launched on the GPU, or on the
/// receiving GPU if both devices are GPUs. With `wait`, a copy from the host returns once `in` may be changed, and a
/// copy to the host returns once `out` is complete.
struct Transfer {
  static constexpr const char* kName = "transfer";
  Device out_device;
  Device in_device;
  void* out;
  const void* in;
  std::int64_t bytes;
  bool wait = true;         // false: the host's memory is page-locked and stays untouched until the stream gets here
  bool orders_gpus = true;  // false: the caller has already ordered the streams of both GPUs
};
void run(OnCpu, Context& context, const Transfer& kernel);
void run(OnCuda, Context& context, const Transfer& kernel);

}  // namespace tandem::inline v0::kernels
