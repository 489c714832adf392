#include <algorithm>
#include <cstring>
#include <set>

#include <cuda_runtime.h>

#include "emulated_gpu.h"
#include "operation.h"

// Executes a plan with addresses, after checking them.

namespace emulated_gpu::cudnn {

namespace {

/// The addresses of a plan, by unique id.
struct Binding {
  std::map<std::int64_t, void*> addresses;
  std::map<std::int64_t, double> by_value;  // read when the plan is queued
  void* workspace = nullptr;
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

// Runs operations one after another. Intermediate results, which a GPU keeps in registers, are in memory here.
void run(const Object& graph, const Binding& binding) {
  std::map<std::int64_t, std::vector<float>> between;
  if (binding.workspace != nullptr) {
    std::memset(binding.workspace, 0xCB, kWorkspace);
  }
  for (const Held& operation : graph.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).objects) {
    Operands operands;
    read_operation(*operation, operands);
    const auto value = [&](const Held& tensor, std::int64_t i) {
      if (!tensor) {
        return 0.0F;
      }
      const std::int64_t number = number_of(*tensor);
      if (const auto found = binding.by_value.find(number); found != binding.by_value.end()) {
        return static_cast<float>(found->second);
      }
      const std::int64_t at = numel_of(*tensor) == 1 ? 0 : i;
      return is_virtual(*tensor) ? between.at(number)[static_cast<std::size_t>(at)]
                                 : static_cast<float>(load(type_of(*tensor), binding.addresses.at(number), at));
    };
    const Object& result = *operands.result;
    const std::int64_t numel = numel_of(result);
    std::vector<float> values(static_cast<std::size_t>(numel));
    for (std::int64_t i = 0; i < numel; ++i) {
      values[static_cast<std::size_t>(i)] =
          compute(pointwise_of(*operation), value(operands.first, i), value(operands.second, i));
    }
    for (std::int64_t i = 0; i < numel && !is_virtual(result); ++i) {
      store(type_of(result), binding.addresses.at(number_of(result)), i,
            static_cast<double>(values[static_cast<std::size_t>(i)]));
    }
    between[number_of(result)] = std::move(values);
  }
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
  if (workspace_of(*plan) > 0) {
    binding.workspace =
        pack.has(CUDNN_ATTR_VARIANT_PACK_WORKSPACE) ? pack.at(CUDNN_ATTR_VARIANT_PACK_WORKSPACE).addresses[0] : nullptr;
    if (binding.workspace == nullptr || !on_device(binding.workspace)) {
      return refuse(kBad, "the plan needs workspace");
    }
  }
  const cudaError_t error = emulated_gpu::enqueue(handle.stream, "cudnn_pointwise", [=] { run(*graph, binding); });
  return error == cudaSuccess ? kSuccess : refuse(CUDNN_STATUS_EXECUTION_FAILED_CUDART, cudaGetErrorString(error));
}

}  // namespace emulated_gpu::cudnn
