#include "peers_of.h"

// The function that kernel_bench looks up: kPeersSymbol.
extern "C" void tandem_find_kernel_peers(const bench::kernel::Operation& operation,
                                         std::vector<bench::kernel::Peer>& peers) {
#ifdef HAS_EIGEN
  bench::kernel::find_eigen(operation, peers);
#endif
#ifdef HAS_OPENBLAS
  bench::kernel::find_openblas(operation, peers);
#endif
#ifdef HAS_ONEDNN
  bench::kernel::find_onednn(operation, peers);
#endif
}
