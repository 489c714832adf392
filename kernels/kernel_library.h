#pragma once

#include <cstdint>

#include <tandem/core/export.h>

// Whose kernels a GPU runs where there is a choice. Needs no CUDA header; settings are for the whole process, and are
// looked at when a kernel is launched, so that a captured step keeps what held when it was captured.

namespace tandem::inline v0::cuda {

/// Where a kernel comes from.
enum class KernelLibrary : std::uint8_t {
  automatic,  // the faster one, timed at the first use of each op, type and order of size
  own,        // tandem's kernel
  cudnn,      // cuDNN's where it has one, else tandem's
};

/// Whether cuDNN 9 can be used: this build knows it, and libcudnn.so.9 is found at run time, in the linker's places or
/// where the build found it. TANDEM_CUDNN_LIBRARY, a path, comes before both.
TANDEM_API bool cudnn_available() noexcept;

/// Softmax and log-softmax with their gradients. `own` unless set here or by TANDEM_CUDA_SOFTMAX (own, cudnn or auto):
/// then every run has the same bits, with and without cuDNN, whatever else the GPU does while something is timed.
///
/// `automatic` waits for the GPU at the first use of each op, type and order of size; while a step is captured, and
/// without cuDNN, it means `own`. A NaN makes its row NaN with both. cuDNN computes in f32 as we do, but sums in its
/// own order and, in a type of 16 bits, may add to an accumulated gradient after rounding. It takes tensors of fewer
/// than 2^31 elements.
///
/// Throws ConfigError for `cudnn` unless cudnn_available().
TANDEM_API void set_softmax_library(KernelLibrary library);
/// What was set last. Throws ConfigError for a value of TANDEM_CUDA_SOFTMAX that is not known or can't be had.
TANDEM_API KernelLibrary softmax_library();

/// relu, sigmoid, tanh, gelu, silu, elu and softplus with their gradients, in f32, bf16 and f16, on dense tensors of
/// fewer than 2^31 elements, not in place and not accumulating; tandem's kernels have the rest. `own` unless set here
/// or by TANDEM_CUDA_ACTIVATION, for the reason given at set_softmax_library().
///
/// cuDNN compiles a kernel for each op and size: a second at first use, so sizes should be few. cuDNN 9.19 keeps NaN as
/// we do. Its tanh is the hardware's, with 11 bits, also in f32 (`automatic` therefore leaves f32's tanh and gelu_tanh
/// to us); elu, gelu and softplus have absolute errors of about 1e-7 far below and, elu, near 0, where ours are exact
/// to a few units in the last place.
///
/// Throws ConfigError for `cudnn` unless cudnn_available().
TANDEM_API void set_activation_library(KernelLibrary library);
/// What was set last. Throws ConfigError for a value of TANDEM_CUDA_ACTIVATION that is not known or can't be had.
TANDEM_API KernelLibrary activation_library();

}  // namespace tandem::inline v0::cuda
