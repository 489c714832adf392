#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tandem/core/dtype.h>
#include <tandem/telemetry/run_folder.h>

#include "step/problem.h"

// The only definition of the cases. Peers read them from the file that gpu_bench writes.

namespace bench::gpu {

/// A case of whole training steps.
struct TrainCase {
  std::string workload;
  std::string name;
  Spec spec;
  tandem::DType dtype;
  bool tf32;                   // f32 products may round their factors
  bool channels_last = false;  // images and what is computed from them
};

/// A case of Adam alone, on tensors of equal sizes.
struct AdamCase {
  std::string name;
  std::int64_t tensors, elements;
  tandem::DType dtype;
};

/// A case of mean cross-entropy on [rows, classes], forward and backward.
struct CrossEntropyCase {
  std::string name;
  std::int64_t rows, classes;
  tandem::DType dtype;
};

/// A case of one pass over [rows, columns].
struct PassCase {
  std::string name;
  std::string op;  // bias_relu, bias_grad, cast (f32 to bf16), layer_norm, layer_norm_grad (forward and backward)
  std::int64_t rows, columns;
  tandem::DType dtype;
  double bytes;  // bytes read and written per call
};

/// A case of one op on [16, 16], measured by its time on the host.
struct HostCase {
  std::string name;
  std::string op;  // add, relu, matmul, linear_grad (forward and backward)
};

/// Cases of W1, W2, W3 or W8. `smoke` selects sizes that an emulated GPU can manage.
std::vector<TrainCase> train_cases(const std::string& workload, bool smoke);
std::vector<AdamCase> adam_cases(bool smoke);                   // W4
std::vector<CrossEntropyCase> cross_entropy_cases(bool smoke);  // W5
std::vector<PassCase> pass_cases(bool smoke);                   // W7
std::vector<HostCase> host_cases();                             // host

/// The case as an object for the peers. The field "kind" names its type.
tandem::telemetry::Fields fields_of(const TrainCase& c);
tandem::telemetry::Fields fields_of(const AdamCase& c);
tandem::telemetry::Fields fields_of(const CrossEntropyCase& c);
tandem::telemetry::Fields fields_of(const PassCase& c);
tandem::telemetry::Fields fields_of(const HostCase& c);

/// The layer sizes, "128-256-10", or the name of the net.
std::string model_name(const Spec& spec);

}  // namespace bench::gpu
