#pragma once

#include <cstdint>
#include <vector>

#include <tandem/core/device.h>

#include "step/problem.h"

// The models of data_parallel_bench: one with a short step, and one large enough to use a second core well.

namespace bench::data_parallel {

inline Spec small_net() { return {.sizes = {128, 256, 128, 10}, .batch = 16, .lr = 1e-9}; }
inline Spec large_net() { return {.sizes = {784, 512, 512, 10}, .batch = 256, .rule = Rule::adam, .lr = 1e-9}; }

/// Two logical CPU devices.
const std::vector<tandem::Device>& devices();

std::int64_t parameters_of(const Spec& spec);

/// Lower bound of the extra time of a step on two cores, in microseconds: two tasks handed over (forward, backward),
/// moving the parameters to the other core and the gradients back.
double floor_us(std::int64_t parameters);

/// Registers the benchmarks of floors. Names contain a model's name.
void register_floors();

}  // namespace bench::data_parallel
