#pragma once

#include <cstdint>

#include <tandem/core/bad_value.h>
#include <tandem/core/dtype.h>
#include <tandem/kernels/kernel.h>

namespace tandem::inline v0::kernels {

/// -weight[index] * log_probs[outer, index, inner], with an index per (outer, inner). The result is each loss, or their
/// sum times `scale`, as in CrossEntropy. An index is in [0, classes) or ignore_index.
struct NegativeLogLikelihood {
  static constexpr const char* kName = "nll_loss";
  DType dtype;
  bool loss_per_row;
  bool mean;
  std::int64_t outer, classes, inner;
  const void* log_probs;
  const std::int64_t* indices;  // [outer, inner]
  const void* weight;           // [classes], or null
  std::int64_t ignore_index;
  void* scale;           // [1], in the type that `dtype` computes in
  void* loss;            // [outer, inner] or [1]
  core::BadValue bad{};  // describes an index that is no class; the kernel fills in which one
};
void run(OnCpu, Context& context, const NegativeLogLikelihood& kernel);
void run(OnCuda, Context& context, const NegativeLogLikelihood& kernel);

/// log_probs_grad (+)= -weight[index] * g * scale at each index, 0 elsewhere; g has one element, or one per index.
struct NegativeLogLikelihoodGrad {
  static constexpr const char* kName = "nll_loss_grad";
  DType dtype;
  bool loss_per_row;
  Accumulate accumulate = Accumulate::no;
  std::int64_t outer, classes, inner;
  const std::int64_t* indices;
  const void* weight;
  std::int64_t ignore_index;
  const void* scale;
  const void* grad;
  void* log_probs_grad;
};
void run(OnCpu, Context& context, const NegativeLogLikelihoodGrad& kernel);
void run(OnCuda, Context& context, const NegativeLogLikelihoodGrad& kernel);

}  // namespace tandem::inline v0::kernels
