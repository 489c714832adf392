#pragma once

#include <memory>

#include <tandem/core/export.h>
#include <tandem/parallel/comm/backend.h>

namespace tandem::inline v0::parallel {

/// Makes `host`, which carries CPU tensors, carry GPU tensors as well. These are copied to page-locked memory, sent
/// like CPU tensors and copied back. Large ones go in pieces, so that copies and network overlap. CPU tensors go
/// unchanged. Ranks may therefore share a GPU, or have none. The caller's thread, or the group's, waits for the copies
/// from the GPU; no thread waits for the copies to the GPU.
TANDEM_API std::unique_ptr<Backend> staged_backend(std::unique_ptr<Backend> host);

}  // namespace tandem::inline v0::parallel
