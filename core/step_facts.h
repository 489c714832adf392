#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <tandem/core/export.h>

namespace tandem::inline v0 {

/// Wrappers and optimisers say these of the steps that a thread makes. 0: nobody has said it.
enum class Fact : std::uint8_t {
  rows,               // of a rank's latest forward pass through a wrapper
  buckets,            // in which gradients travel
  gradient_bytes,     // of these buckets
  parameter_bytes,    // of the parameters that an optimiser updates on this rank
  state_bytes,        // of its state
  peak_bytes,         // of all tensors on its device at once, those of other ranks of the process included
  shares_memory,      // 1: the ranks exchange by memory that they share
  is_on_gpu,          // 1: gradients are on a GPU
  shards_updates,     // 1: each rank updates its part of the parameters
  shards_parameters,  // 1: and keeps that part alone
  devices,            // of a DataParallel
  stages,             // of a pipeline
  microbatches,       // in a pipeline's step
  idle,               // share of a pipeline's time in which its stages, which are devices of this rank, were idle ...
  imbalance           // ... and the part of it that comes from stages of unequal cost
};

/// Number of facts.
inline constexpr std::size_t kFacts = 15;
/// One number for each fact.
using StepFacts = std::array<double, kFacts>;

namespace core {

/// The facts of the calling thread.
TANDEM_API inline StepFacts& step_facts() noexcept {
  constinit static thread_local StepFacts facts{};
  return facts;
}

/// Says a fact of the steps that the calling thread makes.
inline void set_step_fact(Fact fact, double value) noexcept { step_facts()[static_cast<std::size_t>(fact)] = value; }

}  // namespace core
}  // namespace tandem::inline v0
