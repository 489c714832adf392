#pragma once

#include <stdexcept>  // Gloo's headers use it without including it

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gloo/context.h>
#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <tandem/parallel/rendezvous/store.h>

// Internal: Gloo's connections, compatible with Debian's Gloo of 2022 and with current Gloo.

namespace tandem::inline v0::parallel {

/// One rank's connections to all others.
class GlooMesh final : public gloo::Context {
 public:
  GlooMesh(std::shared_ptr<gloo::transport::Device> device, int own_rank, int ranks);

  /// Connects to all other ranks. All ranks must call connect() with the same prefix, which was not used before. Each
  /// rank sets the key made of `prefix` and its rank. Fails after `timeout`, which applies to each rank and step, and
  /// soon after close(), with the exceptions of Gloo or the store.
  void connect(Store& store, const std::string& prefix, std::chrono::milliseconds timeout);
  /// Tells the ranks that connect with this prefix that `rank` does not: they fail at once.
  static void refuse(Store& store, const std::string& prefix, int rank, std::chrono::milliseconds timeout) {
    store.set(prefix + std::to_string(rank), "", timeout);
  }
  /// Closes all connections and ends all waits on them, on both sides. Call from any thread except Gloo's.
  void close() noexcept;

 private:
  // Sequentially consistent: either close() sees the pairs, or connect() sees that the mesh is closed.
  std::atomic<bool> has_pairs_{false};
  std::atomic<bool> closed_{false};
};

inline GlooMesh::GlooMesh(std::shared_ptr<gloo::transport::Device> device, int own_rank, int ranks)
    : gloo::Context(own_rank, ranks) {
  transportContext_ = device->createContext(own_rank, ranks);
  device_ = std::move(device);
}

// A rank uses a separate address for each peer, and publishes all of them in one value.
inline void GlooMesh::connect(Store& store, const std::string& prefix, std::chrono::milliseconds timeout) {
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
  store.post_set(prefix + std::to_string(rank), own);
  std::vector<std::string> addresses(static_cast<std::size_t>(size));
  for (int peer = 0; peer < size; ++peer) {
    if (peer != rank) {
      std::string& theirs = addresses[static_cast<std::size_t>(peer)];
      theirs = store.get(prefix + std::to_string(peer), timeout);
      if (theirs.empty()) {
        throw std::runtime_error("rank " + std::to_string(peer) + " cannot connect");
      }
    }
  }
  for (int peer = 0; peer < size; ++peer) {
    if (peer != rank) {
      const char* address = addresses[static_cast<std::size_t>(peer)].data() +
                            bytes * static_cast<std::size_t>(rank - (rank > peer ? 1 : 0));
      transportContext_->getPair(peer)->connect({address, address + bytes});
    }
  }
}

// Gloo's closeConnections() would leave local threads waiting until their deadlines. Reporting a timeout on a buffer
// ends these waits.
inline void GlooMesh::close() noexcept {
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
