#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include <fmt/format.h>

#include <tandem/core/check.h>
#include <tandem/tensor/cuda_allocator.h>

// Internal: bookkeeping of a GPU's memory by purpose, and the message for running out of it.

namespace tandem::inline v0::cuda {

/// Formats a size: "640 B", "1.5 KiB", "79.1 GiB".
inline std::string in_words(std::size_t bytes) {
  constexpr std::array kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

struct Account {
  std::size_t in_use = 0;
  std::size_t peak = 0;
  std::size_t cached = 0;
  std::uint64_t allocations = 0;
  std::array<std::size_t, core::kMemoryUses> by_use{};
  std::map<std::size_t, std::size_t, std::greater<>> blocks;  // blocks in use: size in bytes, count

  void add(std::size_t bytes, core::MemoryUse use) {
    in_use += bytes;
    peak = std::max(peak, in_use);
    by_use[static_cast<std::size_t>(use)] += bytes;
    ++blocks[bytes];
  }

  void remove(std::size_t bytes, core::MemoryUse use) {
    in_use -= bytes;
    by_use[static_cast<std::size_t>(use)] -= bytes;
    if (const auto found = blocks.find(bytes); --found->second == 0) {
      blocks.erase(found);
    }
  }

  void move(std::size_t bytes, core::MemoryUse from, core::MemoryUse to) {
    by_use[static_cast<std::size_t>(from)] -= bytes;
    by_use[static_cast<std::size_t>(to)] += bytes;
  }

  void write(MemoryStats& stats) const {
    stats.in_use = in_use;
    stats.peak = peak;
    stats.cached = cached;
    stats.allocations = allocations;
    stats.by_use = by_use;
  }

  [[noreturn]] void fail(int gpu, std::size_t asked, std::size_t free, std::size_t total) const {
    constexpr int kLargest = 3;
    std::string largest;
    int written = 0;
    for (const auto& [bytes, count] : blocks) {
      largest += fmt::format("{}{} x {}", written == 0 ? "" : ", ", count, in_words(bytes));
      if (++written == kLargest) {
        break;
      }
    }
    tandem::fail<OutOfMemory>(
        "cuda:{} is out of memory: asked for {}, {} of {} are free. This program holds {}: parameters {}, gradients "
        "{}, optimizer {}, activations and all else {}; the largest are {}. Take a smaller batch; other programs on "
        "this GPU are listed by nvidia-smi",
        gpu, in_words(asked), in_words(free), in_words(total), in_words(in_use), in_words(by_use[1]),
        in_words(by_use[2]), in_words(by_use[3]), in_words(by_use[0]), largest.empty() ? "none" : largest);
  }
};

}  // namespace tandem::inline v0::cuda
