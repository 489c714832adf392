#pragma once

#include <cstdint>

#include <tandem/kernels/cpu/per_isa.h>

namespace tandem::inline v0::kernels::cpu {

TANDEM_FOR_EACH_ISA(
    /// Writes the numbers of the Philox blocks from `counter` on under `key`; the last block may be cut.
    void philox_numbers(std::uint32_t* out, std::int64_t count, std::uint64_t key, std::uint64_t counter);
    /// Writes normal numbers: element i is made of numbers[2 i] and numbers[2 i + 1], by the formula of draw(), with
    /// f32 functions accurate to some units in the last place.
    void normal_row(float* out, const std::uint32_t* numbers, std::int64_t count, float mean, float deviation);)

}  // namespace tandem::inline v0::kernels::cpu
