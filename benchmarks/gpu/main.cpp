#include "command_line/program.h"
#include "gpu/bench.h"

int main(int argc, char** argv) { return cli::run_main(argc, argv, bench::gpu::gpu_bench); }
