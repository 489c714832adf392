#pragma once

#include <cstdint>
#include <optional>

#include <tandem/nn/module.h>

namespace tandem::inline v0::nn {

/// What an Embedding can be made with.
struct EmbeddingOptions {
  std::optional<std::int64_t> padding_idx = std::nullopt;  // a row that starts as 0 and is not trained
  std::optional<Device> device = std::nullopt;             // of the weight; default: the current device
  DType dtype = DType::f32;                                // of the weight
};

/// A table of vectors: i64 (or i32) indices of any shape become rows of the weight, [..., embedding_dim]. The rows
/// start as draws from N(0, 1).
class TANDEM_API Embedding : public Module<Embedding> {
 public:
  /// Throws ConfigError for negative sizes or a padding_idx (negative: from the end) that is no row.
  Embedding(std::int64_t num_embeddings, std::int64_t embedding_dim, const EmbeddingOptions& options = {});
  /// With this weight [num_embeddings, embedding_dim], whose elements are shared; with `freeze` it is not trained.
  static Embedding from_pretrained(const Tensor& weight, bool freeze = true,
                                   std::optional<std::int64_t> padding_idx = std::nullopt);

  Tensor forward(const Tensor& indices) const;

  Parameter weight;  // [num_embeddings, embedding_dim]

 private:
  Embedding(const Tensor& weight, std::optional<std::int64_t> padding_idx);

  std::optional<std::int64_t> padding_idx_;
};

}  // namespace tandem::inline v0::nn
