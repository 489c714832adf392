#pragma once

#include <cstdint>
#include <optional>

#include <tandem/core/export.h>
#include <tandem/nn/embedding.h>
#include <tandem/nn/linear.h>
#include <tandem/nn/module.h>

// Layers whose weight is divided among the ranks of a group (tensor parallelism). Each is made of a whole layer, whose
// values on the group's rank 0 count, and keeps this rank's part, frozen where the whole is. All ranks compute the same
// batch:
//
//     struct Mlp : nn::Module<Mlp> {
//       explicit Mlp(ProcessGroup& group)
//           : up(child("up", ColumnParallelLinear(nn::Linear(64, 256), group))),
//             down(child("down", RowParallelLinear(nn::Linear(256, 10), group))) {}
//       Tensor forward(const Tensor& x) const { return down(relu(up(x))); }
//       ...
//     };
//
// The group must outlive the layers. Calls and constructors are collectives. Outputs and gradients equal those of the
// whole layers up to rounding. Shoeybi et al., "Megatron-LM" (2019).

namespace tandem::inline v0::parallel {

class ProcessGroup;

/// Options of ColumnParallelLinear.
struct ColumnParallelOptions {
  bool gather_output = false;      ///< all outputs on each rank, instead of this rank's part
  bool sequence_parallel = false;  ///< `x` has this rank's rows (dimension 0) of the batch
};

/// A Linear of which each rank computes a part of the outputs: y_r = x W_r^T + b_r.
class TANDEM_API ColumnParallelLinear : public nn::Module<ColumnParallelLinear> {
 public:
  /// Throws ConfigError if out_features is no multiple of the number of ranks.
  ColumnParallelLinear(const nn::Linear& whole, ProcessGroup& group, const ColumnParallelOptions& options = {});

  /// x [..., in] gives [..., out / ranks], or [..., out] with gather_output.
  Tensor forward(const Tensor& x) const;
  /// The layer as a whole, on all ranks, for saving. A collective.
  nn::Linear whole() const;

  Parameter weight;  ///< [out_features / ranks, in_features]
  Parameter bias;    ///< [out_features / ranks]; undefined without bias

 private:
  ProcessGroup* group_;
  ColumnParallelOptions options_;
};

/// Options of RowParallelLinear.
struct RowParallelOptions {
  bool input_is_parallel = true;   ///< `x` has this rank's part of the features, as from a ColumnParallelLinear
  bool sequence_parallel = false;  ///< the result has this rank's rows (dimension 0) of the batch
};

/// A Linear that takes a part of the inputs on each rank: y = sum over ranks of x_r W_r^T, + b.
class TANDEM_API RowParallelLinear : public nn::Module<RowParallelLinear> {
 public:
  /// Throws ConfigError if in_features is no multiple of the number of ranks.
  RowParallelLinear(const nn::Linear& whole, ProcessGroup& group, const RowParallelOptions& options = {});

  /// x [..., in / ranks], or [..., in] unless input_is_parallel, gives [..., out].
  Tensor forward(const Tensor& x) const;
  /// The layer as a whole, on all ranks, for saving. A collective.
  nn::Linear whole() const;

  Parameter weight;  ///< [out_features, in_features / ranks]
  Parameter bias;    ///< [out_features], the same on all ranks; undefined without bias

 private:
  ProcessGroup* group_;
  RowParallelOptions options_;
};

/// Options of VocabParallelEmbedding.
struct VocabParallelOptions {
  bool sequence_parallel = false;  ///< the result has this rank's rows (dimension 0) of the batch
};

/// An Embedding of which each rank has a part of the rows.
class TANDEM_API VocabParallelEmbedding : public nn::Module<VocabParallelEmbedding> {
 public:
  /// Throws ConfigError if num_embeddings is no multiple of the number of ranks.
  VocabParallelEmbedding(const nn::Embedding& whole, ProcessGroup& group, const VocabParallelOptions& options = {});

  /// Indices of any shape, the same on all ranks, give [..., embedding_dim]. Throws ValueError for one outside the
  /// table on CPUs; on GPUs, for which the host does not wait, it gives zeros.
  Tensor forward(const Tensor& indices) const;
  /// The layer as a whole, on all ranks, for saving. A collective.
  nn::Embedding whole() const;

  Parameter weight;  ///< [num_embeddings / ranks, embedding_dim]

 private:
  ProcessGroup* group_;
  VocabParallelOptions options_;
  std::optional<std::int64_t> padding_idx_;  // of the whole table, not negative
};

}  // namespace tandem::inline v0::parallel
