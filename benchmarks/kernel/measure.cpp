#include "kernel/measure.h"

#include <algorithm>
#include <cmath>
#include <string>

#include <tandem/core/dtype.h>

#include "kernel/clock.h"
#include "step/measure.h"

namespace bench::kernel {

namespace {

constexpr std::int64_t kLine = 64;
constexpr std::int64_t kStep = 512;  // bytes that a step takes of the largest stream

}  // namespace

Measurement::Measurement(Case& of, std::vector<TimedPeer> peers, double block_seconds)
    : case_(of), peers_(std::move(peers)), block_seconds_(block_seconds), of_peers_(peers_.size()) {
  for (Pass& pass : case_.passes) {
    std::ranges::stable_sort(pass, {}, &Stream::access);
    std::int64_t largest = 0;
    for (const Stream& stream : pass) {
      largest = std::max(largest, stream.bytes);
      bytes_ += static_cast<double>(stream.bytes) * (stream.access == Stream::update ? 2 : 1);
    }
    Walk walk{.streams = {}, .widths = {}, .steps = std::max<std::int64_t>(largest / kStep, 1)};
    for (const Stream& stream : pass) {
      // A stream far smaller than the others stays in a cache: it is counted, and not walked.
      if (const std::int64_t width = stream.bytes / walk.steps / kLine * kLine; width > 0) {
        walk.streams.push_back(stream);
        walk.widths.push_back(width);
        walked_bytes_ += static_cast<double>(width * walk.steps) * (stream.access == Stream::update ? 2 : 1);
      }
    }
    if (!walk.streams.empty()) {
      walks_.push_back(std::move(walk));
    }
  }
  case_.run();
  const double once = std::max(seconds_of(1, case_.run), 1e-8);
  calls_ = std::max<std::int64_t>(1, static_cast<std::int64_t>(block_seconds_ / once));
}

double Measurement::walk_seconds() const {
  const FloorLoops& loops = floor_loops();
  const double seconds = seconds_of(calls_, [&] {
    for (const Walk& walk : walks_) {
      loops.walk(walk.streams.data(), walk.widths.data(), static_cast<int>(walk.streams.size()), walk.steps);
    }
  });
  return walked_bytes_ > 0 ? seconds / static_cast<double>(calls_) * bytes_ / walked_bytes_ : 0;
}

double Measurement::arithmetic_seconds() const {
  if (case_.flops == 0) {
    return 0;
  }
  constexpr std::int64_t kRounds = 100'000;
  double flops = 0;
  const double seconds =
      seconds_of(1, [&] { flops = static_cast<double>(kRounds) * multiply_add(case_.operation.dtype, kRounds); });
  return seconds * case_.flops / flops;
}

double Measurement::block() {
  memory_.push_back(walk_seconds());
  const double seconds = seconds_of(calls_, case_.run);
  ours_.push_back(seconds / static_cast<double>(calls_));
  arithmetic_.push_back(arithmetic_seconds());
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    of_peers_[i].push_back(peers_[i].seconds_per_call(block_seconds_));
  }
  return seconds;
}

Result Measurement::result() const {
  Result result;
  std::vector<double> rooflines, shares;
  for (std::size_t i = 0; i < ours_.size(); ++i) {
    rooflines.push_back(std::max(memory_[i], arithmetic_[i]));
    shares.push_back(rooflines[i] / ours_[i]);
  }
  result.ours = median(ours_);
  result.roofline = median(rooflines);
  result.share = median(shares);
  result.bytes = bytes_;
  result.by_arithmetic = median(arithmetic_) > median(memory_);
  for (std::size_t k = 0; k < peers_.size(); ++k) {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < of_peers_[k].size(); ++i) {
      ratios.push_back(of_peers_[k][i] / ours_[i]);
    }
    result.peers.emplace_back(peers_[k].name, median(ratios));
  }
  return result;
}

}  // namespace bench::kernel
