#pragma once

#include <cstdint>

#include <tandem/kernels/cpu/per_isa.h>

namespace tandem::inline v0::kernels::cpu {

/// Two neighbouring rows of a plane, of which each window of two by two gives an element. `place` is the first
/// element's place in the plane; places are those of MaxPool.
struct HalvedRows {
  std::int64_t count;  // of windows
  std::int32_t place;
  std::int32_t width;  // of the plane
};

TANDEM_FOR_EACH_ISA(
    /* The largest element of each window, and its place. */
    void max_of_halves_f32(const HalvedRows& rows, const float* upper, const float* lower, float* out,
                           std::int32_t* places);
    /* The gradients of both rows. */
    void max_of_halves_grad_f32(const HalvedRows& rows, const float* grad, const std::int32_t* places, float* upper,
                                float* lower);
    /* The mean of each of `count` windows of two by two in two rows. */
    void mean_of_halves_f32(std::int64_t count, float divisor, const float* upper, const float* lower, float* out);
    /* The gradients of both rows. */
    void mean_of_halves_grad_f32(std::int64_t count, float divisor, const float* grad, float* upper, float* lower);)

}  // namespace tandem::inline v0::kernels::cpu
