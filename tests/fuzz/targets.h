#pragma once

#include <cstdint>
#include <span>

// What is fuzzed. Each function hands one input to a reader and ends the program (std::abort) when a promise is broken:
// a reader gives a sound result or throws a tandem::Error, and needs at most twice the file and a mebibyte of memory.
// libFuzzer calls them (fuzzer.cpp), and so does a plain test on the inputs in corpus/ (replay_test.cpp).

namespace tandem::fuzz {

using Bytes = std::span<const std::uint8_t>;

/// The command line of the samples, an argument a line. It keeps the same promises, and its errors are one line.
void cli(Bytes input);
/// The first byte chooses options, the rest is the text. See csv.cpp.
void csv(Bytes input);
/// An init method, and after it a variable in each line: what launchers may have set.
void environment(Bytes input);
/// What a client of a rendezvous server may send, done to a store.
void frames(Bytes input);
/// A file that may be gzip data, read through the file system.
void gzip(Bytes input);
void idx(Bytes input);
void npy(Bytes input);
/// The command line of `tandem run`, an argument a line.
void run_flags(Bytes input);

}  // namespace tandem::fuzz
