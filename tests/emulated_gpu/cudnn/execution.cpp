#include <algorithm>
#include <cstring>
#include <set>

#include <cuda_runtime.h>

#include "conv.h"
#include "emulated_gpu.h"

// Executes a plan with addresses, after checking them.

namespace emulated_gpu::cudnn {

namespace {

/// The addresses of a plan, by unique id.
struct Binding {
  std::map<std::int64_t, void*> addresses;
  std::map<std::int64_t, double> by_value;  // read when the plan is queued
  void* workspace = nullptr;
  std::size_t workspace_size = 0;
  std::int64_t engine = 0;
  void* own_workspace = nullptr;  // the part behind the results that operations hand on
};

cudnnStatus_t bind(const Object& tensor, Binding& binding) {
  const auto found = binding.addresses.find(number_of(tensor));
  if (is_virtual(tensor)) {
    return found == binding.addresses.end() ? kSuccess : refuse(kBad, "an address for a virtual tensor");
  }
  if (found == binding.addresses.end() || found->second == nullptr) {
    return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "a tensor without an address");
  }
  if (is_by_value(tensor)) {
    if (on_device(found->second)) {
      return refuse(kBad, "the address of a value is memory of the device");
    }
    binding.by_value[number_of(tensor)] = load(type_of(tensor), found->second, 0);
    return kSuccess;
  }
  if (!on_device(found->second)) {
    return refuse(CUDNN_STATUS_EXECUTION_FAILED, "an address is not memory of the device");
  }
  if (reinterpret_cast<std::uintptr_t>(found->second) % tensor.number(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT) != 0) {
    return refuse(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, "an address is less aligned than its tensor");
  }
  return kSuccess;
}

cudnnStatus_t bind_all(const Object& graph, Binding& binding) {
  std::set<std::int64_t> known;
  for (const Held& operation : graph.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).objects) {
    Operands operands;
    read_operation(*operation, operands);
    for (const Held& tensor : {operands.first, operands.second, operands.result}) {
      if (!tensor) {
        continue;
      }
      if (const auto status = bind(*tensor, binding); status != kSuccess) {
        return status;
      }
      known.insert(number_of(*tensor));
    }
    const auto address = [&](const Held& tensor) {
      return tensor && !is_virtual(*tensor) ? binding.addresses[number_of(*tensor)] : nullptr;
    };
    const void* result = address(operands.result);
    if (result != nullptr && (result == address(operands.first) || result == address(operands.second))) {
      return refuse(kBad, "in place, of which cuDNN promises nothing");
    }
  }
  const auto stray = [&](const auto& each) { return !known.contains(each.first); };
  return std::any_of(binding.addresses.begin(), binding.addresses.end(), stray)
             ? refuse(kBad, "an address for a tensor that the graph does not have")
             : kSuccess;
}

// The results that operations hand on, by unique id. A GPU keeps them in registers; a hostile library uses the
// workspace.
using Between = std::map<std::int64_t, float*>;

// The position in a tensor that is broadcast to `sizes` of the element at `position` there.
std::int64_t position_in(const Object& tensor, const std::vector<std::int64_t>& sizes, std::int64_t position) {
  if (numel_of(tensor) == 1) {
    return 0;
  }
  std::int64_t at = 0;
  std::int64_t step = 1;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    at += sizes_of(tensor)[d] == 1 ? 0 : position % sizes[d] * step;
    step *= sizes_of(tensor)[d];
    position /= sizes[d];
  }
  return at;
}

void run_convolution(const Object& operation, const Binding& binding, const Between& between) {
  Operands operands;
  read_operation(operation, operands);
  const auto address = [&](const Object& tensor) { return binding.addresses.at(number_of(tensor)); };
  const Object& result = *operands.result;
  const double beta = beta_of(operation);
  compute_convolution(operation, binding.engine, address(*operands.first), address(*operands.second),
                      binding.own_workspace, [&](std::int64_t i, double value) {
                        if (is_virtual(result)) {
                          between.at(number_of(result))[i] = static_cast<float>(value);
                          return;
                        }
                        const std::int64_t at = place_of(result, i);
                        const double before = beta == 0 ? 0 : beta * load(type_of(result), address(result), at);
                        store(type_of(result), address(result), at, value + before);
                      });
}

// Computes every element of an operation.
void run(const Object& operation, const Binding& binding, const Between& between) {
  if (is_convolution(operation)) {
    return run_convolution(operation, binding, between);
  }
  Operands operands;
  read_operation(operation, operands);
  const std::vector<std::int64_t>& sizes = sizes_of(*operands.result);
  const auto value = [&](const Held& tensor, std::int64_t i) {
    if (!tensor) {
      return 0.0F;
    }
    const std::int64_t number = number_of(*tensor);
    if (const auto found = binding.by_value.find(number); found != binding.by_value.end()) {
      return static_cast<float>(found->second);
    }
    const std::int64_t at = position_in(*tensor, sizes, i);
    return is_virtual(*tensor)
               ? between.at(number)[at]
               : static_cast<float>(load(type_of(*tensor), binding.addresses.at(number), place_of(*tensor, at)));
  };
  const Object& result = *operands.result;
  const std::int64_t number = number_of(result);
  for (std::int64_t i = 0; i < numel_of(result); ++i) {
    const float computed = compute(pointwise_of(operation), value(operands.first, i), value(operands.second, i));
    if (is_virtual(result)) {
      between.at(number)[i] = computed;
    } else {
      store(type_of(result), binding.addresses.at(number), place_of(result, i), static_cast<double>(computed));
    }
  }
}

// Calls `body` with every result of the graph, and whether it is also read.
template <class Body>
void for_each_result(const Object& graph, Body&& body) {
  for (const Held& operation : graph.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).objects) {
    Operands operands;
    read_operation(*operation, operands);
    body(*operands.result, beta_of(*operation) != 0);
  }
}

// The friendly library: one kernel.
void run(const Object& graph, const Binding& binding) {
  Between between;
  std::vector<std::vector<float>> memory;
  for_each_result(graph, [&](const Object& result, bool) {
    if (is_virtual(result)) {
      between[number_of(result)] = memory.emplace_back(static_cast<std::size_t>(numel_of(result))).data();
    }
  });
  if (binding.workspace != nullptr) {
    std::memset(binding.workspace, 0xCB, binding.workspace_size);
  }
  for (const Held& operation : graph.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).objects) {
    run(*operation, binding, between);
  }
}

// The hostile library: a kernel for every operation, between two that fill workspace and results with garbage.
cudaError_t enqueue_hostile(cudaStream_t stream, const char* name, const Held& graph, const Binding& binding) {
  Between between;
  auto* next = static_cast<float*>(binding.workspace);
  for_each_result(*graph, [&](const Object& result, bool) {
    if (is_virtual(result)) {
      between[number_of(result)] = next;
      next += numel_of(result);
    }
  });
  const auto scribble = [binding] {
    if (binding.workspace != nullptr) {
      std::memset(binding.workspace, 0xFF, binding.workspace_size);
    }
  };
  cudaError_t error = emulated_gpu::enqueue(stream, "cudnn_prepare", [=] {
    scribble();
    for_each_result(*graph, [&](const Object& result, bool is_read) {
      if (!is_virtual(result) && !is_read) {
        std::memset(binding.addresses.at(number_of(result)), 0xFF,
                    static_cast<std::size_t>(numel_of(result) * bytes_of(type_of(result))));
      }
    });
  });
  for (const Held& operation : graph->at(CUDNN_ATTR_OPERATIONGRAPH_OPS).objects) {
    if (error == cudaSuccess) {
      error = emulated_gpu::enqueue(stream, name, [=] { run(*operation, binding, between); });
    }
  }
  return error == cudaSuccess ? emulated_gpu::enqueue(stream, "cudnn_finish", scribble) : error;
}

}  // namespace

cudnnStatus_t execute(const cudnnContext& handle, const Held& plan, const Object& pack) {
  const Held graph =
      plan->object(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)->object(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
  Binding binding;
  const auto& numbers = pack.at(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS).numbers;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (!binding.addresses.emplace(numbers[i], pack.at(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).addresses[i]).second) {
      return refuse(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES, "two addresses for one tensor");
    }
  }
  if (const auto status = bind_all(*graph, binding); status != kSuccess) {
    return status;
  }
  if (const std::int64_t bytes = workspace_of(*plan); bytes > 0) {
    binding.workspace_size = static_cast<std::size_t>(bytes);
    binding.workspace =
        pack.has(CUDNN_ATTR_VARIANT_PACK_WORKSPACE) ? pack.at(CUDNN_ATTR_VARIANT_PACK_WORKSPACE).addresses[0] : nullptr;
    if (binding.workspace == nullptr || !on_device(binding.workspace)) {
      return refuse(kBad, "the plan needs workspace");
    }
  }
  const bool hostile = mood_of(*graph).on();
  binding.engine = plan->object(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)->engine;
  binding.own_workspace = static_cast<char*>(binding.workspace) + (hostile ? bytes_between(*graph) : 0);
  const char* const name = is_convolution(*graph->at(CUDNN_ATTR_OPERATIONGRAPH_OPS).objects[0])
                               ? convolution_name(binding.engine)
                               : "cudnn_pointwise";
  const cudaError_t error = hostile ? enqueue_hostile(handle.stream, name, graph, binding)
                                    : emulated_gpu::enqueue(handle.stream, name, [=] { run(*graph, binding); });
  return error == cudaSuccess ? kSuccess : refuse(CUDNN_STATUS_EXECUTION_FAILED_CUDART, cudaGetErrorString(error));
}

}  // namespace emulated_gpu::cudnn
