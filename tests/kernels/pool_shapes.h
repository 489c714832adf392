#pragma once

#include <cstdint>
#include <vector>

#include <tandem/kernels/pool.h>

// Shapes of poolings for the tests of both devices.

namespace tandem::test {

inline std::vector<kernels::PoolShape> awkward_pools() {
  using kernels::PoolShape;
  return {
      // planes, in, out, adaptive, window, stride, padding, dilation
      {6, {8, 6}, {4, 3}, false, {2, 2}, {2, 2}, {0, 0}, {1, 1}},
      {3, {9, 17}, {4, 8}, false, {2, 2}, {2, 2}, {0, 0}, {1, 1}},  // with elements that no window reads
      {3, {5, 5}, {3, 3}, false, {2, 2}, {2, 2}, {0, 0}, {1, 1}},   // ceil mode
      {2, {7, 8}, {7, 8}, false, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
      {2, {11, 9}, {4, 4}, false, {3, 2}, {3, 2}, {1, 0}, {1, 1}},
      {2, {9, 9}, {2, 7}, false, {1, 3}, {5, 1}, {0, 0}, {1, 1}},
      {4, {7, 5}, {1, 1}, true, {}, {}, {}, {}},
      {4, {7, 5}, {3, 5}, true, {}, {}, {}, {}},
      {2, {3, 4}, {5, 9}, true, {}, {}, {}, {}},
      {1, {3, 515}, {1, 257}, false, {2, 2}, {2, 2}, {0, 0}, {1, 1}},
      {300, {2, 2}, {1, 1}, false, {2, 2}, {2, 2}, {0, 0}, {1, 1}},
      {0, {4, 4}, {2, 2}, false, {2, 2}, {2, 2}, {0, 0}, {1, 1}},
  };
}

/// Those only of a maximum.
inline std::vector<kernels::PoolShape> dilated_pools() {
  return {{2, {9, 11}, {5, 4}, false, {3, 3}, {1, 2}, {0, 1}, {2, 3}},
          {2, {7, 7}, {3, 3}, false, {3, 3}, {2, 2}, {1, 1}, {2, 2}}};
}

}  // namespace tandem::test
