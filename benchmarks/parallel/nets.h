#pragma once

#include <cstdint>
#include <vector>

#include <tandem/core/device.h>

#include "step/problem.h"

// What data_parallel_bench measures: a model whose step is short, and one that is worth a second core.

namespace bench::data_parallel {

inline Spec small_net() { return {.sizes = {128, 256, 128, 10}, .batch = 16, .lr = 1e-9}; }
inline Spec large_net() { return {.sizes = {784, 512, 512, 10}, .batch = 256, .rule = Rule::adam, .lr = 1e-9}; }

/// Two logical CPU devices.
const std::vector<tandem::Device>& devices();

std::int64_t parameters_of(const Spec& spec);

/// What a step on two cores cannot do without, in microseconds: two tasks handed over (forward, backward), the
/// parameters' way to the other core and the gradients' way back.
double floor_us(std::int64_t parameters);

/// The benchmarks of floors whose names are made of a model's.
void register_floors();

}  // namespace bench::data_parallel
