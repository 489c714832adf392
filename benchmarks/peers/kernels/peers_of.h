#pragma once

#include <vector>

#include "kernel/peer.h"

namespace bench::kernel {

// Each adds its peer if it can do the operation.
void find_eigen(const Operation& operation, std::vector<Peer>& peers);
void find_openblas(const Operation& operation, std::vector<Peer>& peers);
void find_onednn(const Operation& operation, std::vector<Peer>& peers);

}  // namespace bench::kernel
