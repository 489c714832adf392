#include <tandem/nn/embedding.h>

#include <tandem/autograd/ops.h>
#include <tandem/core/check.h>
#include <tandem/core/grad_mode.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::nn {

namespace {

Tensor drawn(std::int64_t rows, std::int64_t dim, const EmbeddingOptions& options) {
  check<ConfigError>(rows >= 0 && dim >= 0, "Embedding: sizes must not be negative, got {} and {}", rows, dim);
  return randn({rows, dim}, {.dtype = options.dtype, .device = options.device});
}

}  // namespace

Embedding::Embedding(const Tensor& table, std::optional<std::int64_t> padding_idx) : padding_idx_(padding_idx) {
  check<ShapeError>(table.dim() == 2, "Embedding: the weight must be [num_embeddings, embedding_dim], got {}",
                    table.shape());
  const std::int64_t rows = table.size(0);
  check<ConfigError>(!padding_idx || (*padding_idx >= -rows && *padding_idx < rows),
                     "Embedding: padding_idx {} is outside [{}, {})", padding_idx.value_or(0), -rows, rows);
  describe(
      fmt::format("{}, {}{}", rows, table.size(1), padding_idx ? fmt::format(", padding_idx={}", *padding_idx) : ""));
  weight = parameter("weight", table);
}

Embedding::Embedding(std::int64_t num_embeddings, std::int64_t embedding_dim, const EmbeddingOptions& options)
    : Embedding(drawn(num_embeddings, embedding_dim, options), options.padding_idx) {
  if (padding_idx_) {
    const NoGradGuard no_grad;
    weight.select(0, *padding_idx_).zero_();
  }
}

Embedding Embedding::from_pretrained(const Tensor& weight, bool freeze, std::optional<std::int64_t> padding_idx) {
  Embedding made(weight, padding_idx);
  made.weight.requires_grad_(!freeze);
  return made;
}

Tensor Embedding::forward(const Tensor& indices) const {
  check_registered();
  return embedding(indices, weight, padding_idx_);
}

}  // namespace tandem::inline v0::nn
