#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <tandem/core/export.h>

namespace tandem::inline v0::telemetry {

/// Options of Trace.
struct TraceOptions {
  /// The most spans that are kept of each thread, the latest ones; 64 bytes each.
  std::int64_t spans_per_thread = std::int64_t{1} << 15;
};

/// One rank in a picture of several.
struct TracedRank {
  int rank = 0;                                ///< its number
  std::string host = {};                       ///< the name of its machine, or empty
  std::chrono::nanoseconds clock_offset = {};  ///< what its clock lacks to that of the picture
};

/// While it exists, records what all threads of the calling thread's rank do when: the phases of each step, each
/// module's forward pass, the exchange of each bucket, batches that are loaded, checkpoints.
///
///     telemetry::Trace trace;
///     train();
///     trace.write("trace.json");  // open it in https://ui.perfetto.dev
///
/// For all ranks together, see parallel::write_trace(). Times are those of the host, which runs ahead of a GPU;
/// the
/// phases are shown in each GPU's own time, too, between two CUDA events each. A recorded span costs about 0.1 us.
class TANDEM_API Trace {
 public:
  /// Starts to record. Throws ConfigError unless spans_per_thread is at least 1.
  explicit Trace(const TraceOptions& options = {});
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// Ends the recording; write() and events() do so too.
  void stop() noexcept;
  /// The number of spans that were left out, because later ones took their place.
  std::int64_t dropped() const noexcept;

  /// Writes (or replaces) the picture of this rank alone, completely or not at all: an object in Chrome's Trace Event
  /// Format, which Perfetto shows with one track for each thread. Throws IoError.
  void write(const std::string& path);
  /// This rank's events in a picture of several ranks, for join().
  std::string events(const TracedRank& of);
  /// The picture of these ranks' events().
  static std::string join(const std::vector<std::string>& events);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::inline v0::telemetry
