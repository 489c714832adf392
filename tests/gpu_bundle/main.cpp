#include <string_view>

#include <gtest/gtest.h>

#include "command_line/program.h"
#include "gpu/bench.h"

// All tests of a GPU and gpu_bench in one program, because each of two programs would contain the library:
//
//     tandem_gpu tests [flags of GoogleTest]
//     tandem_gpu bench [arguments of gpu_bench]

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "bench") {
    return cli::run_main(argc - 1, argv + 1, bench::gpu::gpu_bench);
  }
  // A death test starts the program again with the same arguments, so GoogleTest sees the word "tests", too.
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
