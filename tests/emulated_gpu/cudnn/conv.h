#pragma once

#include <functional>

#include "operation.h"

// Convolutions and their engines.

namespace emulated_gpu::cudnn {

/// Whether an operation is a convolution or a gradient of one.
bool is_convolution(const Object& operation);
/// Whether a convolution's descriptor is complete.
cudnnStatus_t check_convolution(const Object& convolution);
/// Refuses the operation unless its tensors fit each other. `second` is the weight, or the output of a gradient of it.
cudnnStatus_t read_convolution(const Object& operation, Operands& operands);
/// Refuses a graph that begins with a convolution unless nothing, or the sum with a bias, follows.
cudnnStatus_t check_convolution_graph(const Object& graph);

/// The engines for a graph that begins with a convolution, best first.
std::vector<std::int64_t> convolution_engines(const Object& graph, std::int64_t mode);
/// The numerical notes of any engine.
std::vector<std::int64_t> notes_of(std::int64_t engine);
bool can_compile(std::int64_t engine);
/// Bytes that an engine needs.
std::int64_t convolution_workspace(std::int64_t engine, const Object& graph);
/// The name of an engine's kernel.
const char* convolution_name(std::int64_t engine);

/// The factor of the result's old value; 0 for other operations.
double beta_of(const Object& operation);
/// Calls put(position, value) with each element of the result, without what beta adds.
void compute_convolution(const Object& operation, std::int64_t engine, const void* first, const void* second,
                         void* workspace, const std::function<void(std::int64_t, double)>& put);
/// Calls add() with the numbers that tell convolutions apart, as far as their tensors don't.
void add_question(const Object& operation, const std::function<void(std::int64_t)>& add);

}  // namespace emulated_gpu::cudnn
