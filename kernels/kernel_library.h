#pragma once

#include <cstdint>

#include <tandem/core/export.h>

// Chooses between tandem's and cuDNN's kernels on a GPU. This header needs no CUDA header. Settings hold for the whole
// process. They are read when a kernel is launched, so a captured step keeps the choice that held when it was captured.

namespace tandem::inline v0::cuda {

/// Source of a kernel.
enum class KernelLibrary : std::uint8_t {
  own,    // tandem's kernel
  cudnn,  // cuDNN's kernel if it has one, else tandem's
};

/// True if cuDNN 9 can be used: this build supports it, and libcudnn.so.9 is found at run time, in the linker's
/// directories or where the build found it. TANDEM_CUDNN_LIBRARY, a path, replaces this search.
TANDEM_API bool cudnn_available() noexcept;

/// Sets the library for softmax, log-softmax and their gradients. The default is `own`, unless TANDEM_CUDA_SOFTMAX (own
/// or cudnn) says otherwise, so that every run has the same bits with and without cuDNN.
///
/// A NaN makes its row NaN with both libraries. cuDNN computes in f32 like tandem, but sums in its own order. In a type
/// of 16 bits it may add to an accumulated gradient after rounding. It takes tensors of fewer than 2^31 elements.
///
/// Throws ConfigError for `cudnn` unless cudnn_available().
TANDEM_API void set_softmax_library(KernelLibrary library);
/// Returns the library that was set last. Throws ConfigError if TANDEM_CUDA_SOFTMAX has an unknown value or names a
/// library that is not available.
TANDEM_API KernelLibrary softmax_library();

/// Sets the library for relu, sigmoid, tanh, gelu, silu, elu, softplus and their gradients, in f32, bf16 and f16, on
/// dense tensors of fewer than 2^31 elements, not in place and not accumulating. tandem's kernels run all other cases.
/// The default is `own`, unless TANDEM_CUDA_ACTIVATION says otherwise, for the reason given at set_softmax_library().
///
/// cuDNN compiles a kernel for each op and size, which takes a second at first use, so use few sizes. cuDNN 9.19 keeps
/// NaN like tandem. Its tanh is the hardware's and has 11 bits, even in f32. Its elu, gelu and softplus have absolute
/// errors of about 1e-7 far below 0, and elu also near 0; tandem's kernels are exact to a few units in the last place.
///
/// Throws ConfigError for `cudnn` unless cudnn_available().
TANDEM_API void set_activation_library(KernelLibrary library);
/// Returns the library that was set last. Throws ConfigError if TANDEM_CUDA_ACTIVATION has an unknown value or names a
/// library that is not available.
TANDEM_API KernelLibrary activation_library();

/// Sets the library for convolutions and their gradients. The default is `cudnn` where cudnn_available(), unless
/// TANDEM_CUDA_CONVOLUTION says otherwise. tandem's own kernel is simple; it runs the convolutions that cuDNN refuses,
/// and those with a tensor of 2^31 elements or more.
///
/// cuDNN proposes engines. An engine is fit if it gives equal bits in every run, sums in f32 (in f64 for f64), neither
/// rounds factors nor transforms them, and needs at most 256 MiB of scratch memory. The first fit one is taken, or the
/// fastest with set_kernel_tuning(). set_float32_matmul_precision() allows TF32 in convolutions, too. In a type of 16
/// bits, a bias and an accumulated gradient may be added after rounding. In 16 bits and TF32 an engine may also compute
/// the ReLU of conv2d_relu(); cuDNN does not say what that makes of NaN.
///
/// Throws ConfigError for `cudnn` unless cudnn_available().
TANDEM_API void set_convolution_library(KernelLibrary library);
/// Returns the library that was set last. Throws ConfigError if TANDEM_CUDA_CONVOLUTION has an unknown value or names a
/// library that is not available.
TANDEM_API KernelLibrary convolution_library();

}  // namespace tandem::inline v0::cuda
