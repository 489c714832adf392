#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <tandem/core/export.h>

// Settings of matrix products and convolutions: their precision, and how they choose their algorithms on a GPU. A build
// without CUDA declares all of them too.

namespace tandem::inline v0 {

/// Sets the precision of f32 matrix products. Sums are f32 in any case.
///
/// - "highest" (default): factors are f32.
/// - "high": a GPU with tensor cores rounds factors to TF32 (10 fraction bits), which is several times as fast. A CPU
///   keeps them in f32.
/// - "medium": a GPU does as for "high". A CPU with AVX512-BF16 rounds factors to bf16 (7 fraction bits; 0 for numbers
///   below 2^-126, infinity above 3.39e38), which makes large products twice to four times as fast. Products of fewer
///   than twelve rows, or four columns, may keep them in f32, and convolutions always do. Other CPUs keep factors in
///   f32.
///
/// The function has the same name and meaning as in PyTorch. The setting applies to the whole process; a captured step
/// keeps the precision under which it was recorded. Throws ConfigError for any other text.
TANDEM_API void set_float32_matmul_precision(std::string_view precision);
/// The current setting.
TANDEM_API std::string_view get_float32_matmul_precision() noexcept;

namespace cuda {

/// Switches on or off that matrix products and convolutions on a GPU choose their algorithms by measuring them. For
/// convolutions it is what torch.backends.cudnn.benchmark is in PyTorch.
///
/// - Off (default, unless the environment has TANDEM_CUDA_TUNING=1): each product takes cuBLASLt's own first choice,
/// and
///   each convolution cuDNN's. Every run of a program on GPUs of one model has the same algorithms.
/// - On: the first product of each shape, type and layout runs up to 32 algorithms six times each and keeps the fastest
///   for the rest of the process. The first convolution, or gradient of one, does so with up to 15 of cuDNN's engines.
///   Both also measure whether a bias, a ReLU or the extra results of a backward pass are faster inside the kernel or
///   in one after it. That first call waits for the GPU, which should be otherwise idle. While it lasts, it takes up to
///   160 MiB of the GPU's memory and the size of the result, for a convolution up to 384 MiB and twice that size;
///   without room for that, the library's first choice stays. Two runs can choose differently, and their results then
///   differ in the last bits; save_matmul_plans() keeps the choice of products for other runs.
///
/// The setting holds for the whole process. Switching it off keeps the choices that were already measured. Of
/// convolutions, the last 512 stay. A step that is being captured measures nothing: graph::capture() has run the step
/// before.
TANDEM_API void set_kernel_tuning(bool on) noexcept;
/// Returns the setting: the last value set, or the environment's. Throws ConfigError if TANDEM_CUDA_TUNING is neither 0
/// nor 1.
TANDEM_API bool kernel_tuning();

/// Switches on or off that products on a GPU also do the work that follows them in the backward pass of layers: ReLU's
/// mask and the gradients of biases. cuBLASLt does so in 16 bits and TF32, where the mask is kept as bits, and tandem's
/// kernel for small products in f32. On by default, unless the environment has TANDEM_CUDA_FUSED_BACKWARD=0. When it is
/// off, other kernels do that work, with the same results up to rounding. With set_kernel_tuning() each product
/// measures which is faster.
///
/// The setting holds for the whole process. Graphs that are already recorded and captured steps keep the setting they
/// started with.
TANDEM_API void set_fused_backward(bool on) noexcept;
/// Returns the setting: the last value set, or the environment's. Throws ConfigError if TANDEM_CUDA_FUSED_BACKWARD is
/// neither 0 nor 1.
TANDEM_API bool fused_backward();

/// Switches on or off that small f32 products on a GPU are computed by a kernel of tandem's own, which also adds the
/// bias, applies the ReLU or its mask, and sums the gradient of a bias. Small are products of at most 128 rows, or
/// weight gradients over at most 128 rows, with sums of at most 2,048 products, 2^20 results and 2^26 multiplications,
/// in the precision "highest". On by default, unless the environment has TANDEM_CUDA_SMALL_PRODUCTS=0; then cuBLASLt
/// computes all products. With set_kernel_tuning() each product measures which is faster.
///
/// The setting holds for the whole process. Captured steps keep the setting they started with.
TANDEM_API void set_small_products(bool on) noexcept;
/// Returns the setting: the last value set, or the environment's. Throws ConfigError if TANDEM_CUDA_SMALL_PRODUCTS is
/// neither 0 nor 1.
TANDEM_API bool small_products();

/// Writes the choices that this process has measured or loaded to a text file, one line each, and returns their number.
/// An existing file is replaced as a whole or not at all. Throws IoError.
TANDEM_API std::size_t save_matmul_plans(const std::string& path);

/// Result of load_matmul_plans().
struct LoadedMatmulPlans {
  std::size_t loaded = 0;   // plans for this machine
  std::size_t skipped = 0;  // plans for other GPUs than this machine's, or for another version of cuBLASLt
};

/// Reads a file that save_matmul_plans() wrote. Its choices hold without measuring, with tuning on or off, for products
/// that this process has not measured. cuBLASLt checks each choice when it is first used; a refused one is made anew.
/// Throws IoError, and loads nothing, if the file cannot be read or any part of it is wrong.
TANDEM_API LoadedMatmulPlans load_matmul_plans(const std::string& path);

}  // namespace cuda

}  // namespace tandem::inline v0
