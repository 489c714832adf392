#pragma once

#include <cstddef>
#include <string>

#include <tandem/core/export.h>

// How matrix products of a GPU choose their algorithms. A build without CUDA has all of it, too: there is nothing to
// choose then.

namespace tandem::inline v0::cuda {

/// Whether matrix products of a GPU choose their algorithms by measuring them.
///
/// - Off (default, unless the environment has TANDEM_CUDA_TUNING=1): cuBLASLt's own first choice. The same algorithm in
///   each run of a program on GPUs of one model.
/// - On: the first product of each shape, type and layout runs up to 32 algorithms six times each, and what is fastest
///   stays for the rest of the process; so does whether a bias, a ReLU or what a backward pass wants besides belongs
///   into the product or behind it. That first call waits for the GPU, which should have nothing else to do meanwhile,
///   and takes up to 160 MiB of its memory and the size of the result as long as it lasts. Two runs can choose
///   differently, and their results then differ in the last bits; save_matmul_plans() keeps the choice for other runs.
///
/// For the whole process. Products that have already chosen by measurement keep their choice when this is switched off.
/// Inside a step that is being captured nothing is measured: graph::capture() has run the step before.
TANDEM_API void set_matmul_tuning(bool on) noexcept;
/// What was set last, or what the environment says. Throws ConfigError if TANDEM_CUDA_TUNING is neither 0 nor 1.
TANDEM_API bool matmul_tuning();

/// Whether layers on a GPU in 16 bits or TF32 leave what follows a product in the backward pass to cuBLASLt: ReLU's
/// mask, kept as bits, and the gradients of biases. On (default, unless the environment has
/// TANDEM_CUDA_FUSED_BACKWARD=0); off, passes of our own do it, with the same results but for their rounding. With
/// set_matmul_tuning() each product decides for itself what is faster.
///
/// For the whole process; graphs that are already recorded, and captured steps, keep what held then.
TANDEM_API void set_fused_backward(bool on) noexcept;
/// What was set last, or what the environment says. Throws ConfigError if TANDEM_CUDA_FUSED_BACKWARD is neither 0
/// nor 1.
TANDEM_API bool fused_backward();

/// Writes what this process has measured or loaded to a text file, one line for each choice, and returns how many there
/// are. What was there is replaced as a whole or not at all. Throws IoError.
TANDEM_API std::size_t save_matmul_plans(const std::string& path);

/// What load_matmul_plans() found.
struct LoadedMatmulPlans {
  std::size_t loaded = 0;   // of this machine
  std::size_t skipped = 0;  // of other GPUs than this machine's, or of another version of cuBLASLt
};

/// Reads what save_matmul_plans() wrote: these choices hold without measuring, with tuning on or off, for products that
/// have not been measured in this process. cuBLASLt checks each when it is first used; one that it refuses is made
/// anew. Throws IoError for a file that cannot be read or that is not entirely right; nothing is loaded then.
TANDEM_API LoadedMatmulPlans load_matmul_plans(const std::string& path);

}  // namespace tandem::inline v0::cuda
