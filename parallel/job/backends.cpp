#include <tandem/parallel/job/backends.h>

#include <fmt/format.h>

#include <tandem/core/cuda.h>
#include <tandem/parallel/comm/hosts/gloo_backend.h>
#include <tandem/parallel/comm/nccl/nccl.h>

namespace tandem::inline v0::parallel {

std::vector<BackendInfo> backends() {
  const std::string gpus = cuda::is_available() ? "CPU devices and GPUs" : "CPU devices";
  const std::string no_nccl = why_nccl_is_unavailable();
  return {
      {"local", true, fmt::format("ranks as threads of one process, on {}", gpus)},
      {"gloo", has_gloo(),
       has_gloo() ? fmt::format("ranks as processes on one or many hosts, on {}", gpus)
                  : "built without Gloo: apt-get install libgloo-dev, and build tandem again in a fresh build folder"},
      {"nccl", no_nccl.empty(), no_nccl.empty() ? "ranks as processes, on a GPU each" : no_nccl},
  };
}

}  // namespace tandem::inline v0::parallel
