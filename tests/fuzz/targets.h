#pragma once

#include <cstdint>
#include <span>

// The fuzz targets. Each function hands one input to a reader and ends the program (std::abort) when a promise is
// broken: a reader must return a sound result or throw a tandem::Error, and needs at most twice the file plus a
// mebibyte of memory. libFuzzer calls the functions (fuzzer.cpp), and so does a plain test on the inputs in corpus/
// (replay_test.cpp).

namespace tandem::fuzz {

using Bytes = std::span<const std::uint8_t>;

/// The command line of the samples, one argument per line. Keeps the same promises, and errors are one line.
void cli(Bytes input);
/// CSV text; the first byte chooses options. See csv.cpp.
void csv(Bytes input);
/// An init method, followed by one variable per line, as launchers may set them.
void environment(Bytes input);
/// Data from a client of a rendezvous server, applied to a store.
void frames(Bytes input);
/// A file that may be gzip data, read through the file system.
void gzip(Bytes input);
void idx(Bytes input);
void npy(Bytes input);
void safetensors(Bytes input);
/// The command line of `tandem run`, one argument per line.
void run_flags(Bytes input);

}  // namespace tandem::fuzz
