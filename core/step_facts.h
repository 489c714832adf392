#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <tandem/core/export.h>
#include <tandem/core/span.h>
#include <tandem/core/thread_state.h>

namespace tandem::inline v0 {

/// Wrappers and optimisers say these of the steps that a thread makes. 0: nobody has said it.
enum class Fact : std::uint8_t {
  rows,               // of a rank's latest forward pass through a wrapper
  buckets,            // in which gradients travel
  gradient_bytes,     // of these buckets
  parameter_bytes,    // of the parameters that an optimiser updates on this rank
  state_bytes,        // of its state
  gpu,                // 1 + the number of the GPU that the parameters are on
  peak_bytes,         // of all tensors on its device at once, those of other ranks of the process included
  shares_memory,      // 1: the ranks exchange by memory that they share
  is_launched,        // 1: the exchange is launched on the GPU, and the host does not wait for it
  shards_updates,     // 1: each rank updates its part of the parameters
  shards_parameters,  // 1: and keeps that part alone
  devices,            // of a DataParallel
  stages,             // of a pipeline
  microbatches,       // in a pipeline's step
  idle,               // share of a pipeline's time in which its stages, which are devices of this rank, were idle ...
  imbalance           // ... and the part of it that comes from stages of unequal cost
};

/// Number of facts.
inline constexpr std::size_t kFacts = 16;
/// One number for each fact.
using StepFacts = std::array<double, kFacts>;

namespace core {

/// A thread has said these facts of the steps that it makes.
struct SaidFacts {
  StepFacts before{};  // said between the beginnings of the last two updates
  StepFacts since{};   // said since the last update began

  /// The facts of the step that ends now. A wrapper that took part only in earlier steps leaves none.
  StepFacts latest() const noexcept {
    StepFacts facts = before;
    for (std::size_t i = 0; i < kFacts; ++i) {
      facts[i] = since[i] != 0 ? since[i] : facts[i];
    }
    return facts;
  }
  /// An update begins, the first one of a step.
  void begin_update() noexcept {
    before = since;
    since = {};
  }
  /// Says anew what was said while a step was captured.
  void repeat(const StepFacts& facts) noexcept {
    for (std::size_t i = 0; i < kFacts; ++i) {
      since[i] = facts[i] != 0 ? facts[i] : since[i];
    }
  }
};

/// The facts of the calling thread.
TANDEM_API inline SaidFacts& said_facts() noexcept {
  constinit static thread_local SaidFacts facts;
  return facts;
}

/// Whether anybody needs facts that cost something to find out: a listener, or the replays of a step that is recorded.
inline bool needs_step_facts() noexcept { return detail::has_span_listeners() || thread_state().recorder != nullptr; }

/// Says a fact of the step that the calling thread makes.
inline void set_step_fact(Fact fact, double value) noexcept {
  said_facts().since[static_cast<std::size_t>(fact)] = value;
}

}  // namespace core
}  // namespace tandem::inline v0
