#include <algorithm>

#include "capture.h"

using emulated_gpu::detail::call;
using emulated_gpu::detail::Lock;
using emulated_gpu::detail::Marker;
using emulated_gpu::detail::Runtime;
using emulated_gpu::detail::Task;

namespace {

using Nodes = std::vector<std::shared_ptr<CUgraphNode_st>>;

// Positions in an order that respects every dependency and is otherwise chosen by the seed.
std::vector<std::size_t> order_of(Runtime& runtime, const Nodes& nodes) {
  std::vector<std::size_t> missing(nodes.size());
  std::vector<std::vector<std::size_t>> after(nodes.size());
  std::vector<std::size_t> ready;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    missing[i] = nodes[i]->before.size();
    for (const std::size_t before : nodes[i]->before) {
      after[before].push_back(i);
    }
    if (missing[i] == 0) {
      ready.push_back(i);
    }
  }
  std::vector<std::size_t> order;
  while (!ready.empty()) {
    const auto pick = ready.begin() + static_cast<std::ptrdiff_t>(runtime.random(ready.size()));
    const std::size_t node = *pick;
    ready.erase(pick);
    order.push_back(node);
    for (const std::size_t next : after[node]) {
      if (--missing[next] == 0) {
        ready.push_back(next);
      }
    }
  }
  return order;
}

}  // namespace

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  return call([&](Runtime& runtime, Lock&) {
    if (exec == nullptr || graph == nullptr) {
      return cudaErrorInvalidValue;
    }
    if (runtime.lacks_memory("cudaGraphInstantiate")) {
      return cudaErrorMemoryAllocation;
    }
    *exec = new CUgraphExec_st{std::make_shared<const Nodes>(graph->nodes), nullptr};
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags) {
  return cudaGraphInstantiate(exec, graph, flags);
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) {
  return call([&](Runtime& runtime, Lock&) { return exec == nullptr ? cudaErrorInvalidValue : runtime.check(stream); });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  return call([&](Runtime& runtime, Lock& lock) {
    if (exec == nullptr) {
      return cudaErrorInvalidValue;
    }
    if (const cudaError_t error = runtime.check(stream); error != cudaSuccess) {
      return error;
    }
    if (stream->capture != nullptr) {
      return cudaErrorNotSupported;  // a graph as a node of another graph
    }
    const auto nodes = exec->nodes;
    // Launches of one graph do not overlap, whatever their streams.
    auto previous = exec->last_launch;
    for (const std::size_t i : order_of(runtime, *nodes)) {
      Task task = (*nodes)[i]->task;
      task.wait = std::exchange(previous, nullptr);
      if (const cudaError_t error = runtime.submit(lock, *stream, std::move(task)); error != cudaSuccess) {
        return error;
      }
    }
    Task end;
    end.name = "the end of a graph";
    end.record = std::make_shared<Marker>();
    end.record->stream = stream;
    exec->last_launch = end.record;
    return runtime.submit(lock, *stream, std::move(end));
  });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return call([&](Runtime&, Lock&) {
    delete exec;  // launches have copies of the nodes they need
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return call([&](Runtime&, Lock&) {
    delete graph;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  return call([&](Runtime&, Lock&) {
    if (graph == nullptr || count == nullptr) {
      return cudaErrorInvalidValue;
    }
    if (nodes != nullptr) {
      for (std::size_t i = 0; i < *count; ++i) {
        nodes[i] = i < graph->nodes.size() ? graph->nodes[i].get() : nullptr;
      }
    }
    *count = nodes == nullptr ? graph->nodes.size() : std::min(*count, graph->nodes.size());
    return cudaSuccess;
  });
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  return call([&](Runtime&, Lock&) {
    if (node == nullptr || type == nullptr) {
      return cudaErrorInvalidValue;
    }
    *type = node->task.type;
    return cudaSuccess;
  });
}
