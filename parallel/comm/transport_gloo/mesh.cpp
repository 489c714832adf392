#include <tandem/parallel/comm/transport_gloo/mesh.h>

#include <utility>
#include <vector>

#include <gloo/transport/context.h>
#include <gloo/transport/unbound_buffer.h>

namespace tandem::inline v0::parallel {

GlooMesh::GlooMesh(std::shared_ptr<gloo::transport::Device> device, int own_rank, int ranks)
    : gloo::Context(own_rank, ranks) {
  transportContext_ = device->createContext(own_rank, ranks);
  device_ = std::move(device);
}

// A rank uses a separate address for each peer, and publishes all of them in one value.
void GlooMesh::connect(Store& store, const std::string& prefix, std::chrono::milliseconds timeout) {
  transportContext_->setTimeout(timeout);
  std::string own;
  std::size_t bytes = 0;  // of one address
  for (int peer = 0; peer < size; ++peer) {
    if (peer != rank) {
      const std::vector<char> address = transportContext_->createPair(peer)->address().bytes();
      bytes = address.size();
      own.append(address.begin(), address.end());
    }
  }
  has_pairs_ = true;
  if (closed_) {
    throw std::runtime_error("closed while it was connecting");
  }
  store.set(prefix + std::to_string(rank), own, timeout);
  for (int peer = 0; peer < size; ++peer) {
    if (peer != rank) {
      const std::string theirs = store.get(prefix + std::to_string(peer), timeout);
      const char* address = theirs.data() + bytes * static_cast<std::size_t>(rank - (rank > peer ? 1 : 0));
      transportContext_->getPair(peer)->connect({address, address + bytes});
    }
  }
}

// Gloo's closeConnections() would leave local threads waiting until their deadlines. Reporting a timeout on a buffer
// ends these waits.
void GlooMesh::close() noexcept {
  closed_ = true;
  if (!has_pairs_) {
    return;
  }
  try {
    char nothing = 0;
    transportContext_->createUnboundBuffer(&nothing, 1)->waitRecv(std::chrono::milliseconds(1));
  } catch (const std::exception&) {  // waitRecv() reports the timeout as an exception
  }
}

}  // namespace tandem::inline v0::parallel
