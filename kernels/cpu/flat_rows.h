#pragma once

#include <cstdint>

#include <tandem/core/float16.h>
#include <tandem/kernels/cpu/per_isa.h>

// Loops over dense arrays that are compiled once per instruction set, on one thread; the caller divides the work. Sums
// run in eight lanes, so their bits are the same for all.

namespace tandem::inline v0::kernels::cpu {

// scale_nonzero multiplies all values except zeros, and clamp_f32 limits them to [-limit, limit]. move_average computes
// average = decay * average + rest * values. largest_magnitude keeps a NaN. select_32 computes out = condition ? a : b.
// narrow_* and widen_* convert; narrow_* round once.
TANDEM_FOR_EACH_ISA(void scale_nonzero(float* values, float factor, std::int64_t count);
                    void clamp_f32(float* values, float limit, std::int64_t count);
                    void move_average(float* average, const float* values, float decay, float rest, std::int64_t count);
                    double sum_of_squares(const float* values, std::int64_t count);
                    double sum_of_magnitudes(const float* values, std::int64_t count);
                    double largest_magnitude(const float* values, std::int64_t count);
                    void select_32(std::uint32_t* out, const bool* condition, const std::uint32_t* a,
                                   const std::uint32_t* b, std::int64_t count);
                    void add_f32(float* to, const float* values, std::int64_t count);
                    void sum_two(float* out, const float* a, const float* b, std::int64_t count);
                    void narrow_bf16(BFloat16* out, const float* in, std::int64_t count);
                    void narrow_f16(Float16* out, const float* in, std::int64_t count);
                    void widen_bf16(float* out, const BFloat16* in, std::int64_t count);
                    void widen_f16(float* out, const Float16* in, std::int64_t count);)

}  // namespace tandem::inline v0::kernels::cpu
