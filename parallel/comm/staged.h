#pragma once

#include <memory>

#include <tandem/core/export.h>
#include <tandem/parallel/comm/backend.h>

namespace tandem::inline v0::parallel {

/// `host`, which carries tensors of CPU devices, made to carry those of GPUs as well: they are copied to page-locked
/// memory, go as tensors of a CPU, and are copied back; large ones piece by piece, so that copies and network overlap.
/// Tensors of a CPU go as before. So ranks may share a GPU, or have none. The caller's thread, or the group's, waits
/// for the copy down; nobody waits for the copy up.
TANDEM_API std::unique_ptr<Backend> staged_backend(std::unique_ptr<Backend> host);

}  // namespace tandem::inline v0::parallel
