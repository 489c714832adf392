#include <tandem/kernels/cuda/cudnn/graph.h>

#include <algorithm>
#include <array>

namespace tandem::inline v0::kernels::gpu::cudnn {

namespace {

constexpr std::int64_t kMostBytes = std::int64_t{256} << 20;  // of workspace

/// cuDNN's proposals for a graph, best first.
std::vector<Descriptor> configurations(Handle graph, cudnnBackendHeurMode_t mode) {
  constexpr std::int64_t kMost = 64;
  Descriptor search(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  search.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph).set(CUDNN_ATTR_ENGINEHEUR_MODE, mode).finish();
  std::vector<Descriptor> found;
  std::vector<Handle> handles;
  for (std::int64_t i = 0; i < kMost; ++i) {
    handles.push_back(found.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).get());
  }
  std::int64_t count = 0;
  require_or_refuse(api().cudnnBackendGetAttribute(search.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                   CUDNN_TYPE_BACKEND_DESCRIPTOR, kMost, &count, handles.data()));
  found.erase(found.begin() + std::clamp(count, std::int64_t{0}, kMost), found.end());
  return found;
}

bool has_unwanted_note(const Descriptor& configuration, const Notes& unwanted) {
  if (unwanted.empty()) {
    return false;
  }
  const Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  Handle to = engine.get();
  std::int64_t count = 0;
  require_or_refuse(api().cudnnBackendGetAttribute(configuration.get(), CUDNN_ATTR_ENGINECFG_ENGINE,
                                                   CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &to));
  // The library may know more notes than these headers.
  std::array<cudnnBackendNumericalNote_t, 64> notes{};
  require_or_refuse(api().cudnnBackendGetAttribute(to, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                                   std::int64_t{notes.size()}, &count, notes.data()));
  const auto end = notes.begin() + std::clamp(count, std::int64_t{0}, std::int64_t{notes.size()});
  return std::find_first_of(notes.begin(), end, unwanted.begin(), unwanted.end()) != end;
}

/// Adds plans with the proposals of a mode, until there are `most`.
void add_plans(cudnnHandle_t handle, const std::shared_ptr<const Graph>& graph, cudnnBackendHeurMode_t mode,
               std::size_t most, const Notes& unwanted, std::vector<Plan>& plans) {
  for (Descriptor& configuration : configurations(graph->parts.back().get(), mode)) {
    if (plans.size() == most) {
      return;
    }
    try {
      if (has_unwanted_note(configuration, unwanted)) {
        continue;
      }
      Descriptor finished(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      finished.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle)
          .set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration.get())
          .finish();
      std::int64_t count = 0;
      std::int64_t workspace = 0;
      require_or_refuse(api().cudnnBackendGetAttribute(finished.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                                       CUDNN_TYPE_INT64, 1, &count, &workspace));
      if (workspace <= kMostBytes) {
        plans.push_back({graph, std::move(configuration), std::move(finished), workspace});
      }
    } catch (const Refusal&) {  // go on to the next proposal
    }
  }
}

}  // namespace

Descriptor dense_tensor(std::int64_t number, cudnnDataType_t type, const std::vector<std::int64_t>& sizes,
                        std::int64_t alignment, MemoryFormat format) {
  const Shape dense = strides_of(sizes, format);
  const std::vector<std::int64_t> strides(dense.begin(), dense.end());
  Descriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, number)
      .set(CUDNN_ATTR_TENSOR_DATA_TYPE, type)
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, sizes)
      .set(CUDNN_ATTR_TENSOR_STRIDES, strides)
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, alignment);
  return tensor;
}

std::vector<Plan> make_plans(cudnnHandle_t handle, Graph graph, std::size_t most, const Notes& unwanted) {
  Descriptor whole(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  whole.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle).set(CUDNN_ATTR_OPERATIONGRAPH_OPS, graph.operations);
  graph.add(whole);  // last
  const auto shared = std::make_shared<const Graph>(std::move(graph));
  std::vector<Plan> plans;
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    try {
      if (plans.empty()) {
        add_plans(handle, shared, mode, most, unwanted, plans);
      }
    } catch (const Refusal&) {  // no proposals in this mode
    }
  }
  return plans;
}

bool execute(const Queue& queue, const Session& session, const Plan& plan, const Addresses& addresses,
             const void* workspace, const char* name) {
  require(api().cudnnSetStream(session.handle, queue.stream()), "cudnnSetStream");
  cuda::note_launch(name);
  std::vector<std::int64_t> numbers;
  std::vector<const void*> data;
  for (const auto& [number, address] : addresses) {
    numbers.push_back(number);
    data.push_back(address);
  }
  try {
    Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, numbers)
        .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, data)
        .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, workspace)
        .finish();
    const cudnnStatus_t status = api().cudnnBackendExecute(session.handle, plan.finished.get(), pack.get());
    if (status >= CUDNN_STATUS_NOT_SUPPORTED && is_refusal(status)) {  // a bad parameter would be our mistake
      return false;
    }
    require(status, "cudnnBackendExecute");
    return true;
  } catch (const Refusal& refusal) {
    throw_status(refusal.status, "a variant pack");
  }
}

}  // namespace tandem::inline v0::kernels::gpu::cudnn
