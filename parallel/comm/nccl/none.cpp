#include <tandem/build.h>
#include <tandem/core/check.h>
#include <tandem/parallel/comm/nccl/nccl.h>

// The functions of nccl.h in a build without NCCL's header.

namespace tandem::inline v0::parallel {

std::string why_nccl_is_unavailable() {
  return TANDEM_WITH_CUDA ? "this build of tandem has no NCCL (no nccl.h was found when it was configured; NCCL_ROOT "
                            "says where to look)"
                          : "this build of tandem has no CUDA, and so no NCCL";
}

std::unique_ptr<Backend> nccl_backend(std::unique_ptr<Backend>, Device, const NcclOptions&) {
  fail<ConfigError>("nccl_backend: {}; tensors of GPUs can go by Gloo, through page-locked memory",
                    why_nccl_is_unavailable());
}

}  // namespace tandem::inline v0::parallel
