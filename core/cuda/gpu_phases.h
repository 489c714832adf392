#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include <tandem/core/cuda_stream.h>
#include <tandem/core/fork.h>
#include <tandem/core/gpu_spans.h>

// Internal: phases between events on GPUs.

namespace tandem::inline v0::core {

class GpuPhases {
 public:
  explicit GpuPhases(const parallel::RankContext* rank);
  ~GpuPhases();
  GpuPhases(const GpuPhases&) = delete;
  GpuPhases& operator=(const GpuPhases&) = delete;

  /// The record of the calling thread's rank, or null.
  static std::shared_ptr<GpuPhases> find();
  /// The GPU of the calling thread's DeviceScope, or else the one that the thread used last; -1: none.
  static int gpu_of_this_thread() noexcept;

  /// Begins a phase on that GPU. Returns 0 while what its stream is given is captured: such events belong to a graph.
  std::uint64_t begin(Phase phase, int gpu);
  void end(std::uint64_t number);
  void compare_clocks();
  std::uint64_t next();
  std::vector<GpuPhase> between(std::uint64_t begin, std::uint64_t end);
  const parallel::RankContext* rank() const noexcept { return rank_; }

 private:
  static constexpr std::size_t kMost = std::size_t{1} << 15U;
  struct One {
    std::uint64_t number;
    Phase phase;
    std::thread::id thread;
    cuda::Event began;
    std::optional<cuda::Event> ended;
  };
  /// A point of time on both clocks.
  struct Origin {
    cuda::Event event;
    Span::Clock::time_point at;
    bool is_stale = false;  ///< whether compare_clocks() was called since
  };

  static Origin origin_of(const cuda::Stream& stream);
  cuda::Event reached_by(const cuda::Stream& stream);

  const parallel::RankContext* rank_;
  std::uint64_t next_;
  std::deque<One> latest_;
  std::map<int, Origin> origins_;                 // by GPU
  std::map<int, std::vector<cuda::Event>> idle_;  // events of phases that made room for later ones
  ForkSafeMutex mutex_;                           // guards the members above
};

}  // namespace tandem::inline v0::core
