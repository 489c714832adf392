#pragma once

#include <cstdint>
#include <optional>

#include <tandem/nn/module.h>

namespace tandem::inline v0::nn {

/// Options of Embedding.
struct EmbeddingOptions {
  std::optional<std::int64_t> padding_idx = std::nullopt;  // this row starts as 0 and is not trained
  std::optional<Device> device = std::nullopt;             // device of the weight; default: the current device
  DType dtype = DType::f32;                                // type of the weight
};

/// A table of vectors: each i64 (or i32) index, in a tensor of any shape, selects a row of the weight; the result is
/// [..., embedding_dim]. The rows start as draws from N(0, 1).
class TANDEM_API Embedding : public Module<Embedding> {
 public:
  /// Throws ConfigError for a negative size, or for a padding_idx outside the table (a negative one counts from the
  /// end).
  Embedding(std::int64_t num_embeddings, std::int64_t embedding_dim, const EmbeddingOptions& options = {});
  /// Uses this weight [num_embeddings, embedding_dim] and shares its elements. With `freeze` the weight is not trained.
  static Embedding from_pretrained(const Tensor& weight, bool freeze = true,
                                   std::optional<std::int64_t> padding_idx = std::nullopt);

  Tensor forward(const Tensor& indices) const;
  /// The row that is not trained, counted as it was given.
  std::optional<std::int64_t> padding_idx() const noexcept { return padding_idx_; }

  Parameter weight;  // [num_embeddings, embedding_dim]

 private:
  Embedding(const Tensor& weight, std::optional<std::int64_t> padding_idx);

  std::optional<std::int64_t> padding_idx_;
};

}  // namespace tandem::inline v0::nn
