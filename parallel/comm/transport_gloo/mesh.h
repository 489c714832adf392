#pragma once

#include <stdexcept>  // Gloo's headers use it without including it

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include <gloo/context.h>
#include <gloo/transport/device.h>

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
  /// Closes all connections and ends all waits on them, on both sides. Call from any thread except Gloo's.
  void close() noexcept;

 private:
  // Sequentially consistent: either close() sees the pairs, or connect() sees that the mesh is closed.
  std::atomic<bool> has_pairs_{false};
  std::atomic<bool> closed_{false};
};

}  // namespace tandem::inline v0::parallel
