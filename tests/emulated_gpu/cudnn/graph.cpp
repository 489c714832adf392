#include <algorithm>
#include <set>

#include "conv.h"

// Graphs of operations, and plans for them. Graphs of element-wise operations for which cuDNN 9.19 has no kernel on
// compute capability 9.0 are refused here too: tensors of f64, of 2^31 elements, or of other than three dimensions.
// There are two engines for them. The first one proposed needs workspace and cannot be compiled for an odd number of
// elements.

namespace emulated_gpu::cudnn {

namespace {

bool broadcasts(const std::vector<std::int64_t>& sizes, const std::vector<std::int64_t>& to) {
  const auto fits = [](std::int64_t size, std::int64_t other) { return size == other || size == 1; };
  return std::equal(sizes.begin(), sizes.end(), to.begin(), to.end(), fits);
}

}  // namespace

cudnnStatus_t read_operation(const Object& operation, Operands& operands) {
  if (is_convolution(operation)) {
    return read_convolution(operation, operands);
  }
  if (!operation.has(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR) ||
      pointwise_of(operation).type != CUDNN_BACKEND_POINTWISE_DESCRIPTOR) {
    return refuse(kBad, "no pointwise descriptor");
  }
  const std::int64_t mode = pointwise_of(operation).number(CUDNN_ATTR_POINTWISE_MODE);
  std::vector<cudnnBackendAttributeName_t> names;
  if (is_backward(mode)) {
    names = {CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
             CUDNN_ATTR_OPERATION_POINTWISE_DXDESC};
  } else if (inputs_of(mode) == 2) {
    names = {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
             CUDNN_ATTR_OPERATION_POINTWISE_YDESC};
  } else {
    names = {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_YDESC};
  }
  if (operation.values.size() != names.size() + 1) {
    return refuse(kBad, "more or fewer tensors than the mode has");
  }
  for (const auto name : names) {
    if (!operation.has(name) || operation.object(name)->type != CUDNN_BACKEND_TENSOR_DESCRIPTOR) {
      return refuse(kBad, "dxDesc.getNbDims() != xDesc.getNbDims()");
    }
  }
  operands = {operation.object(names.front()), names.size() == 3 ? operation.object(names[1]) : nullptr,
              operation.object(names.back())};
  for (const Held& tensor : {operands.first, operands.second}) {
    if (tensor && numel_of(*tensor) != 1 && !broadcasts(sizes_of(*tensor), sizes_of(*operands.result))) {
      return refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "sizes that do not broadcast");
    }
  }
  return kSuccess;
}

namespace {

constexpr std::int64_t kEngineWithWorkspace = 1;
constexpr std::int64_t kPlainEngine = 2;

enum Decision : std::uint64_t { kPropose, kDrop, kOrder, kFinish, kDemand };

bool starts_with_convolution(const Object& graph) {
  return is_convolution(*graph.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).objects[0]);
}

}  // namespace

std::int64_t bytes_between(const Object& graph) {
  std::int64_t bytes = 0;
  for (const Held& operation : graph.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).objects) {
    Operands operands;
    read_operation(*operation, operands);
    bytes += is_virtual(*operands.result) ? 4 * numel_of(*operands.result) : 0;
  }
  return bytes;
}

namespace {

cudnnStatus_t check_tensor(const Object& tensor) {
  for (const auto name : {CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_ATTR_TENSOR_STRIDES,
                          CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT}) {
    if (!tensor.has(name)) {
      return refuse(kBad, "a tensor needs a type, dimensions, strides, a unique id and an alignment");
    }
  }
  if (sizes_of(tensor).size() != tensor.at(CUDNN_ATTR_TENSOR_STRIDES).numbers.size()) {
    return refuse(kBad, "as many dimensions as strides");
  }
  const std::int64_t bytes = bytes_of(type_of(tensor));
  const std::int64_t alignment = tensor.number(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
  if (bytes == 0 || alignment <= 0 || alignment % bytes != 0) {
    return refuse(kBad, "(_ptrAlignment <= 0) || _ptrAlignment % sizeofCudnnType(_dataType) != 0");
  }
  if (is_virtual(tensor) && is_by_value(tensor)) {
    return refuse(kBad, "virtual and by value");
  }
  return kSuccess;
}

cudnnStatus_t check_pointwise(const Object& pointwise) {
  if (!pointwise.has(CUDNN_ATTR_POINTWISE_MODE) || !pointwise.has(CUDNN_ATTR_POINTWISE_MATH_PREC)) {
    return refuse(kBad, "a mode and a type to compute in");
  }
  if (inputs_of(pointwise.number(CUDNN_ATTR_POINTWISE_MODE)) == 0) {
    return refuse(CUDNN_STATUS_NOT_SUPPORTED, "a mode that is not emulated");
  }
  return kSuccess;
}

cudnnStatus_t check_graph(const Object& graph) {
  if (!graph.has(CUDNN_ATTR_OPERATIONGRAPH_OPS) || !graph.has(CUDNN_ATTR_OPERATIONGRAPH_HANDLE)) {
    return refuse(kBad, "a handle and operations");
  }
  std::map<std::int64_t, const Object*> tensors;
  std::set<std::int64_t> written;
  for (const Held& operation : graph.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).objects) {
    Operands operands;
    if ((operation->type != CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR && !is_convolution(*operation)) ||
        read_operation(*operation, operands) != kSuccess) {
      return refuse(kBad, "an operation that is not emulated");
    }
    for (const Held& tensor : {operands.first, operands.second, operands.result}) {
      if (tensor && tensors.emplace(number_of(*tensor), tensor.get()).first->second != tensor.get()) {
        return refuse(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES, "two tensors of one unique id");
      }
    }
    for (const Held& tensor : {operands.first, operands.second}) {
      if (tensor && is_virtual(*tensor) && !written.contains(number_of(*tensor))) {
        return refuse(kBad, "outputGraph.buildDAG()");
      }
    }
    if (is_by_value(*operands.result) || !written.insert(number_of(*operands.result)).second) {
      return refuse(kBad, "a result by value, or written twice");
    }
  }
  return starts_with_convolution(graph) ? check_convolution_graph(graph) : kSuccess;
}

// cuDNN may propose nothing, or refuse to search.
cudnnStatus_t check_search(const Object& search) {
  if (search.values.size() != 2) {
    return refuse(kBad, "a graph and a mode");
  }
  const Object& graph = *search.object(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
  return starts_with_convolution(graph) && convolution_engines(graph, search.number(CUDNN_ATTR_ENGINEHEUR_MODE)).empty()
             ? refuse(CUDNN_STATUS_NOT_SUPPORTED, "no engine in this mode")
             : kSuccess;
}

cudnnStatus_t check_plan(const Object& plan) {
  if (!plan.has(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG) || !plan.has(CUDNN_ATTR_EXECUTION_PLAN_HANDLE)) {
    return refuse(kBad, "a handle and an engine configuration");
  }
  const Object& configuration = *plan.object(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  if (configuration.type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR) {
    return refuse(kBad, "not an engine configuration");
  }
  Operands operands;
  const Object& graph = *configuration.object(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
  read_operation(*graph.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).objects[0], operands);
  if (configuration.engine == kEngineWithWorkspace && numel_of(*operands.result) % 2 != 0) {
    return refuse(CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED, "an odd number of elements");
  }
  if (!can_compile(configuration.engine)) {
    return refuse(CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED, "an engine that does not compile");
  }
  if (mood_of(graph).once_in(4, kFinish + 8 * static_cast<std::uint64_t>(configuration.engine))) {
    return refuse(CUDNN_STATUS_NOT_SUPPORTED, "hostile: not this plan");
  }
  return kSuccess;
}

cudnnStatus_t check_pack(const Object& pack) {
  if (!pack.has(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS) || !pack.has(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS) ||
      pack.at(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS).numbers.size() !=
          pack.at(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).addresses.size()) {
    return refuse(kBad, "as many unique ids as addresses");
  }
  return kSuccess;
}

}  // namespace

cudnnStatus_t check_finished(const Object& object) {
  if (object.finished) {
    return refuse(kBad, "finalized twice");
  }
  Operands operands;
  switch (object.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR: return check_tensor(object);
    case CUDNN_BACKEND_POINTWISE_DESCRIPTOR: return check_pointwise(object);
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR: return check_convolution(object);
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR: return read_operation(object, operands);
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: return check_graph(object);
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR: return check_search(object);
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: return check_plan(object);
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR: return check_pack(object);
    default: return refuse(CUDNN_STATUS_NOT_SUPPORTED, "a descriptor that is not emulated");
  }
}

namespace {

std::vector<std::int64_t> pointwise_engines(const Object& graph, std::int64_t mode) {
  for (const Held& operation : graph.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).objects) {
    Operands operands;
    read_operation(*operation, operands);
    for (const Held& tensor : {operands.first, operands.second, operands.result}) {
      if (tensor &&
          (type_of(*tensor) == CUDNN_DATA_DOUBLE || sizes_of(*tensor).size() != 3 || numel_of(*tensor) > INT32_MAX ||
           (numel_of(*tensor) != 1 && sizes_of(*tensor) != sizes_of(*operands.result)))) {
        return {};
      }
    }
  }
  std::vector<std::int64_t> found{kEngineWithWorkspace, kPlainEngine};
  if (const Hostility mood(mood_of(graph), static_cast<std::uint64_t>(mode)); mood.on()) {
    if (mood.once_in(4, kPropose)) {
      return {};
    }
    if (mood.once_in(2, kOrder)) {
      std::swap(found.front(), found.back());
    }
    found.resize(1 + mood.pick(kDrop, 2));
  }
  return found;
}

}  // namespace

std::vector<Held> proposals(const Object& search) {
  const Held& graph = search.object(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
  const std::int64_t mode = search.number(CUDNN_ATTR_ENGINEHEUR_MODE);
  std::vector<Held> found;
  for (const std::int64_t engine :
       starts_with_convolution(*graph) ? convolution_engines(*graph, mode) : pointwise_engines(*graph, mode)) {
    auto one = std::make_shared<Object>(Object{.type = CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, .finished = true});
    one->engine = engine;
    one->values[CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH].objects = {graph};
    found.push_back(one);
  }
  return found;
}

Hostility mood_of(const Object& graph) {
  std::uint64_t hash = 0;
  const auto add = [&](std::int64_t word) { hash = hash * 0x100000001B3U + static_cast<std::uint64_t>(word); };
  for (const Held& operation : graph.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).objects) {
    Operands operands;
    read_operation(*operation, operands);
    if (is_convolution(*operation)) {
      add_question(*operation, add);
    } else {
      add(pointwise_of(*operation).number(CUDNN_ATTR_POINTWISE_MODE));
    }
    for (const Held& tensor : {operands.first, operands.second, operands.result}) {
      if (tensor) {
        add(numel_of(*tensor));
        add(type_of(*tensor));
        add(tensor->number(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT));
      }
    }
  }
  return Hostility({hash});
}

std::int64_t workspace_of(const Object& plan) {
  const Object& configuration = *plan.object(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  const Object& graph = *configuration.object(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
  const std::int64_t own = starts_with_convolution(graph) ? convolution_workspace(configuration.engine, graph)
                           : configuration.engine == kEngineWithWorkspace ? kWorkspace
                                                                          : 0;
  if (const Hostility mood = mood_of(graph); mood.on()) {
    constexpr std::int64_t kMore[] = {0, 1, kWorkspace, std::int64_t{1} << 20};
    return bytes_between(graph) + own + kMore[mood.pick(kDemand, 4)];
  }
  return own;
}

}  // namespace emulated_gpu::cudnn
