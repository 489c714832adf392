#pragma once

#include <stdexcept>  // Gloo's headers use it without including it

#include <atomic>
#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include <gloo/context.h>
#include <gloo/transport/device.h>

#include <tandem/parallel/rendezvous/store.h>

// Internal: Gloo's connections. It is written for Debian's Gloo of 2022 and for today's.

namespace tandem::inline v0::parallel {

/// While it lives, writing to a connection whose other end is gone is an error for the calling thread, not a signal:
/// Gloo writes without MSG_NOSIGNAL. The thread's mask is as before afterwards.
class SigpipeBlock {
 public:
  SigpipeBlock() noexcept;
  ~SigpipeBlock();
  SigpipeBlock(const SigpipeBlock&) = delete;
  SigpipeBlock& operator=(const SigpipeBlock&) = delete;

 private:
  bool changed_ = false;
};

/// While it lives, threads that are made handle no signals: those are for the program's own.
class SignalBlock {
 public:
  SignalBlock() noexcept;
  ~SignalBlock();
  SignalBlock(const SignalBlock&) = delete;
  SignalBlock& operator=(const SignalBlock&) = delete;

 private:
  sigset_t before_;
};

/// Gloo's thread, which listens at this address.
std::shared_ptr<gloo::transport::Device> gloo_device(const std::string& address);

/// One rank's connections to all others.
class GlooMesh final : public gloo::Context {
 public:
  GlooMesh(std::shared_ptr<gloo::transport::Device> device, int own_rank, int ranks);

  /// All ranks do it, with one prefix that was not used before. Ends after `timeout`, for each rank and step, and soon
  /// after close(), by throwing what Gloo or the store throws. Adds the `keys` that it has set.
  void connect(const std::shared_ptr<Store>& store, const std::string& prefix, std::chrono::milliseconds timeout,
               std::vector<std::string>& keys);
  /// Closes all connections: whatever waits on one, on both sides, ends. From any thread but Gloo's.
  void close() noexcept;

 private:
  // Sequentially consistent: either close() sees the pairs, or connect() sees that it is closed.
  std::atomic<bool> has_pairs_{false};
  std::atomic<bool> closed_{false};
};

}  // namespace tandem::inline v0::parallel
