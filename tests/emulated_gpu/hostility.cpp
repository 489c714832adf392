#include "hostility.h"

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "emulated_gpu.h"

namespace emulated_gpu {

namespace {

std::atomic<std::uint64_t>& seed_of_libraries() {
  static std::atomic<std::uint64_t> seed = [] {
    const char* text = std::getenv("EMULATED_LIBRARIES_HOSTILE");
    return text == nullptr ? std::uint64_t{0} : std::strtoull(text, nullptr, 10);
  }();
  return seed;
}

std::atomic<const char*> refused_call = "";

}  // namespace

void be_hostile(std::uint64_t seed) { seed_of_libraries() = seed; }

void refuse_calls(const char* call) { refused_call = call; }
bool refuses_call(const char* call) { return std::strcmp(call, refused_call.load()) == 0; }

std::uint64_t Hostility::mixed(std::uint64_t hash, std::uint64_t word) {  // splitmix64; never 0
  std::uint64_t bits = hash * 0x100000001B3U + word + 0x9E3779B97F4A7C15U;
  bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9U;
  bits = (bits ^ bits >> 27) * 0x94D049BB133111EBU;
  return (bits ^ bits >> 31) | 1;
}

Hostility::Hostility(std::initializer_list<std::uint64_t> question) : hash_(seed_of_libraries()) {
  if (hash_ != 0) {
    for (const std::uint64_t word : question) {
      hash_ = mixed(hash_, word);
    }
  }
}

}  // namespace emulated_gpu
