#pragma once

#include <map>
#include <string>

#include <tandem/core/dtype.h>
#include <tandem/telemetry/run_folder.h>

#include "gpu/measure.h"

namespace bench::gpu {

/// Options of a run.
struct Options {
  bool smoke = false;  // sizes and call counts for an emulated GPU: the times mean nothing
  int check_steps = 100;
  std::string folder;  // folder for the cases and data that peers read; "": none
  Effort effort;
};

/// The GPU's practical limits, each measured in this process at its first use.
class Ceilings {
 public:
  explicit Ceilings(const Options& options) : options_(options) {}
  /// Rate of a copy that moves 8 GB: bytes read and written per microsecond.
  double bytes_per_us();
  /// Rate of a product of random 8192 x 8192 matrices, computed by cuBLASLt in the same way as in the engine.
  double flops_per_us(tandem::DType dtype, bool tf32 = false);
  /// Lower bound in microseconds for this work: the time for the bytes plus the time for the products.
  double floor_us(double bytes, double flops, tandem::DType dtype, bool tf32 = false);

 private:
  const Options& options_;
  double bytes_per_us_ = 0;
  std::map<std::pair<tandem::DType, bool>, double> flops_per_us_;
};

/// Prints one line of results with the case, the measured times and the floor (0: none).
void print_result(tandem::telemetry::Fields what, const char* variant, const Measured& measured, double floor_us,
                  tandem::telemetry::Fields more = {});

void run_ceilings(const Options& options, Ceilings& ceilings);                               // W0
void run_training(const std::string& workload, const Options& options, Ceilings& ceilings);  // W1 to W3, W8
void run_adam(const Options& options, Ceilings& ceilings);                                   // W4
void run_cross_entropy(const Options& options, Ceilings& ceilings);                          // W5
void run_passes(const Options& options, Ceilings& ceilings);                                 // W7
void run_host(const Options& options);                                                       // host

/// The program: reads the command line, measures, and returns the exit code: 77 without a GPU. Call it by
/// cli::run_main().
int gpu_bench(int argc, char** argv);

/// Adds a case to <folder>/cases.jsonl.
void export_case(const Options& options, const tandem::telemetry::Fields& fields);

/// Writes <stem>.json and <stem>.md from the lines that gpu_bench and its peers printed. Returns the number of losses
/// that differ.
int write_report(const std::string& lines, const std::string& stem);

}  // namespace bench::gpu
