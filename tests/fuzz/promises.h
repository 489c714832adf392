#pragma once

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>

#include <unistd.h>

#include <tandem/core/error.h>

#include "fuzz/memory.h"

// The promises that every target checks.

namespace tandem::fuzz {

/// Aborts the program unless `kept`: a fuzzer treats that as a crash and keeps the input.
inline void promise(bool kept, std::string_view what) {
  if (!kept) {
    // Do not write through stderr, which a target may capture.
    ::dprintf(STDERR_FILENO, "a promise was broken: %.*s\n", static_cast<int>(what.size()), what.data());
    std::abort();
  }
}

/// Runs `read`, which must succeed or throw a tandem::Error whose text fits on one screen, and must never hold more
/// than 2 * file_bytes + 1 MiB of memory.
template <class Read>
void check_promises(std::size_t file_bytes, Read&& read) {
  constexpr std::size_t kOneScreen = 80 * 24;
  constexpr std::size_t kMebibyte = std::size_t{1} << 20;
  MemoryWatch memory;
  try {
    read();
  } catch (const Error& error) {
    const std::string_view text = error.what();
    promise(!text.empty() && text.size() <= kOneScreen, "the text of an error has one screen at most");
  } catch (const std::exception& error) {
    promise(false, error.what());
  }
  promise(memory.peak() <= 2 * file_bytes + kMebibyte, "memory is at most twice the file and 1 MiB");
}

}  // namespace tandem::fuzz
