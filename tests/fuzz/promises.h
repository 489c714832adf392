#pragma once

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>

#include <unistd.h>

#include <tandem/core/error.h>

#include "fuzz/memory.h"

// What every target checks.

namespace tandem::fuzz {

/// Ends the program unless `kept`: a fuzzer takes that for a crash and keeps the input.
inline void promise(bool kept, std::string_view what) {
  if (!kept) {
    // Not through stderr, which a target may catch.
    ::dprintf(STDERR_FILENO, "a promise was broken: %.*s\n", static_cast<int>(what.size()), what.data());
    std::abort();
  }
}

/// Runs `read`, which must end well or throw a tandem::Error with a text of one screen at most, and may have no more
/// than 2 * file_bytes + 1 MiB of memory at a time.
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
