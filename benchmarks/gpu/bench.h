#pragma once

#include <map>
#include <string>

#include <tandem/core/dtype.h>
#include <tandem/telemetry/fields.h>

#include "gpu/measure.h"

namespace bench::gpu {

/// What is wanted of a run.
struct Options {
  bool smoke = false;  // sizes and numbers of calls for an emulated GPU: the times mean nothing
  int check_steps = 100;
  std::string folder;  // where cases and data go for the peers; none: ""
  Effort effort;
};

/// What this GPU can do at most, measured in this process when it is first asked for.
class Ceilings {
 public:
  explicit Ceilings(const Options& options) : options_(options) {}
  /// Of a copy of 8 GB: bytes read and written in a microsecond.
  double bytes_per_us();
  /// Of a product of 8192 x 8192 matrices of random numbers, as the engine has cuBLASLt compute it.
  double flops_per_us(tandem::DType dtype, bool tf32 = false);
  /// Microseconds that this work cannot go below, one after the other.
  double floor_us(double bytes, double flops, tandem::DType dtype, bool tf32 = false);

 private:
  const Options& options_;
  double bytes_per_us_ = 0;
  std::map<std::pair<tandem::DType, bool>, double> flops_per_us_;
};

/// Prints one line of results: what was measured, how long it took and what the floor is (0: none).
void print_result(tandem::telemetry::Fields what, const char* variant, const Measured& measured, double floor_us,
                  tandem::telemetry::Fields more = {});

void run_ceilings(const Options& options, Ceilings& ceilings);                               // W0
void run_training(const std::string& workload, const Options& options, Ceilings& ceilings);  // W1 to W3
void run_adam(const Options& options, Ceilings& ceilings);                                   // W4
void run_cross_entropy(const Options& options, Ceilings& ceilings);                          // W5
void run_passes(const Options& options, Ceilings& ceilings);                                 // W7
void run_host(const Options& options);                                                       // host

/// Adds a case to <folder>/cases.jsonl.
void export_case(const Options& options, const tandem::telemetry::Fields& fields);

/// Makes <stem>.json and <stem>.md of the lines that gpu_bench and its peers printed. Returns how many losses differ.
int write_report(const std::string& lines, const std::string& stem);

}  // namespace bench::gpu
