#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

// The seam between kernel_bench and the libraries that it is compared with. Independent of tandem, so that a peer is
// built without it.

namespace bench::kernel {

/// An operation describes the work of a case to peers that can do the same: out[i] are the results, in[i] the inputs.
struct Operation {
  std::string name;   // "softmax"; peers leave out names that they don't know
  std::string dtype;  // of the inputs: "f32"
  std::vector<std::int64_t> sizes;
  std::vector<const void*> in;
  std::vector<void*> out;
};

/// One way to do the same, on one thread.
struct Peer {
  std::string name;
  std::function<void()> run;
};

/// The function that a library of peers exports, as kPeersSymbol: the peers that can do `operation`. The operation
/// outlives them.
using FindPeers = void (*)(const Operation& operation, std::vector<Peer>& peers);
inline constexpr const char* kPeersSymbol = "tandem_find_kernel_peers";

}  // namespace bench::kernel
