#include <cstddef>
#include <cstdint>

#include "fuzz/targets.h"

// The entry point that libFuzzer calls. TANDEM_FUZZ_TARGET is one of the functions of targets.h.

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  tandem::fuzz::TANDEM_FUZZ_TARGET({data, size});
  return 0;
}
