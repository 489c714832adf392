#pragma once

#include <cstdint>
#include <initializer_list>

// Decisions of an emulated library that is told to be hostile (emulated_gpu.h).

namespace emulated_gpu {

/// The library's answers to one question, such as a product's sizes and types. Equal seeds and questions give equal
/// answers, so all calls of a program agree.
class Hostility {
 public:
  explicit Hostility(std::initializer_list<std::uint64_t> question);
  /// The answers to a part of the question.
  Hostility(const Hostility& whole, std::uint64_t part) : hash_(whole.on() ? mixed(whole.hash_, part) : 0) {}

  /// False if the library is friendly; pick() is 0 then.
  bool on() const { return hash_ != 0; }
  /// A number below `count`, which depends on `what` is decided.
  std::uint64_t pick(std::uint64_t what, std::uint64_t count) const {
    return on() ? (mixed(hash_, ~what) >> 8) % count : 0;
  }
  /// True once in `count` times, and never for a friendly library.
  bool once_in(std::uint64_t count, std::uint64_t what) const { return on() && pick(what, count) == 0; }

 private:
  static std::uint64_t mixed(std::uint64_t hash, std::uint64_t word);

  std::uint64_t hash_ = 0;
};

}  // namespace emulated_gpu
