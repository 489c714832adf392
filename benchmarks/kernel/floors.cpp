#include <tandem/core/isa.h>

#include "kernel/floor_loops.h"

namespace bench::kernel {

#if defined(__x86_64__)
namespace baseline {
extern const FloorLoops kLoops;
}
namespace avx2 {
extern const FloorLoops kLoops;
}
namespace avx512 {
extern const FloorLoops kLoops;
}
#else
namespace baseline {
extern const FloorLoops kLoops;
}
#endif

const FloorLoops& floor_loops() {
#if defined(__x86_64__)
  switch (tandem::core::isa()) {
    case tandem::core::Isa::avx512: return avx512::kLoops;
    case tandem::core::Isa::avx2: return avx2::kLoops;
    default: return baseline::kLoops;
  }
#else
  return baseline::kLoops;
#endif
}

}  // namespace bench::kernel
