#include <tandem/parallel/tensor_parallel/layers.h>

#include <string>

#include <fmt/format.h>

#include <tandem/autograd/ops.h>
#include <tandem/core/check.h>
#include <tandem/core/grad_mode.h>
#include <tandem/parallel/comm/elastic_rank.h>
#include <tandem/parallel/comm/process_group.h>
#include <tandem/parallel/tensor_parallel/functions.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::parallel {

namespace {

std::int64_t share_of(std::int64_t size, const ProcessGroup& group, const char* layer, const char* what) {
  check_not_elastic(layer, "its part of the layer");
  check<ConfigError>(size % group.size() == 0, "{}: {} {} is not divisible among {} ranks", layer, what, size,
                     group.size());
  return size / group.size();
}

Tensor of_rank_0(const Tensor& whole, ProcessGroup& group) {
  const NoGradGuard no_grad;
  const Tensor value = whole.detach().clone();
  group.broadcast(value, 0);
  return value;
}

// This rank's part along `dim` of the value that the group's rank 0 has.
Tensor part_of(const Tensor& whole, ProcessGroup& group, int dim) {
  return scatter_to_group(of_rank_0(whole, group), group, dim).clone();
}

// A Linear with these values.
nn::Linear linear_of(const Tensor& weight, const Tensor& bias) {
  nn::Linear whole(weight.size(1), weight.size(0),
                   {.bias = bias.defined(), .device = weight.device(), .dtype = weight.dtype()});
  whole.weight.copy_(weight);
  if (bias.defined()) {
    whole.bias.copy_(bias);
  }
  return whole;
}

// GPUs are not waited for: there a wrong index gives a row of zeros.
void check_indices(const Tensor& indices, std::int64_t rows) {
  if (indices.device().type == DeviceType::cuda || indices.numel() == 0) {
    return;
  }
  for (const double index : {indices.min().item(), indices.max().item()}) {
    check<ValueError>(index >= 0 && index < static_cast<double>(rows),
                      "VocabParallelEmbedding: index {} is outside [0, {}) [TDM-E306]", index, rows);
  }
}

std::string text_of(const nn::Linear& whole, const ProcessGroup& group) {
  return fmt::format("{}, rank {} of {}", whole.description(), group.rank(), group.size());
}

}  // namespace

ColumnParallelLinear::ColumnParallelLinear(const nn::Linear& whole, ProcessGroup& group,
                                           const ColumnParallelOptions& options)
    : group_(&group), options_(options) {
  share_of(whole.weight.size(0), group, "ColumnParallelLinear", "out_features");
  weight = parameter("weight", part_of(whole.weight, group, 0));
  divide_among(weight, group);
  weight.requires_grad_(whole.weight.requires_grad());
  if (whole.bias.defined()) {
    bias = parameter("bias", part_of(whole.bias, group, 0));
    divide_among(bias, group);
    bias.requires_grad_(whole.bias.requires_grad());
  }
  describe(text_of(whole, group));
}

Tensor ColumnParallelLinear::forward(const Tensor& x) const {
  check_registered();
  const Tensor input = options_.sequence_parallel ? gather_from_sequence(x, *group_) : copy_to_group(x, *group_);
  const Tensor output = linear(input, weight, bias);
  return options_.gather_output ? gather_from_group(output, *group_) : output;
}

nn::Linear ColumnParallelLinear::whole() const {
  const NoGradGuard no_grad;
  return linear_of(gather_from_group(weight, *group_, 0),
                   bias.defined() ? gather_from_group(bias, *group_, 0) : Tensor());
}

RowParallelLinear::RowParallelLinear(const nn::Linear& whole, ProcessGroup& group, const RowParallelOptions& options)
    : group_(&group), options_(options) {
  share_of(whole.weight.size(1), group, "RowParallelLinear", "in_features");
  weight = parameter("weight", part_of(whole.weight, group, 1));
  divide_among(weight, group);
  weight.requires_grad_(whole.weight.requires_grad());
  if (whole.bias.defined()) {
    bias = parameter("bias", of_rank_0(whole.bias, group));
    bias.requires_grad_(whole.bias.requires_grad());
  }
  describe(text_of(whole, group));
}

Tensor RowParallelLinear::forward(const Tensor& x) const {
  check_registered();
  const Tensor part = linear(options_.input_is_parallel ? x : scatter_to_group(x, *group_), weight);
  const Tensor sum =
      options_.sequence_parallel ? reduce_scatter_to_sequence(part, *group_) : reduce_from_group(part, *group_);
  if (!bias.defined()) {
    return sum;
  }
  // Each rank adds the bias to rows of its own there, and the gradient is the sum over all rows.
  return sum + (options_.sequence_parallel ? copy_to_group(bias, *group_) : Tensor(bias));
}

nn::Linear RowParallelLinear::whole() const {
  const NoGradGuard no_grad;
  return linear_of(gather_from_group(weight, *group_, 1), bias);
}

VocabParallelEmbedding::VocabParallelEmbedding(const nn::Embedding& whole, ProcessGroup& group,
                                               const VocabParallelOptions& options)
    : group_(&group), options_(options), padding_idx_(whole.padding_idx()) {
  const std::int64_t rows = whole.weight.size(0);
  share_of(rows, group, "VocabParallelEmbedding", "num_embeddings");
  if (padding_idx_ && *padding_idx_ < 0) {
    *padding_idx_ += rows;
  }
  weight = parameter("weight", part_of(whole.weight, group, 0));
  divide_among(weight, group);
  weight.requires_grad_(whole.weight.requires_grad());
  describe(fmt::format("{}, rank {} of {}", whole.description(), group.rank(), group.size()));
}

Tensor VocabParallelEmbedding::forward(const Tensor& indices) const {
  check_registered();
  const std::int64_t share = weight.size(0);
  const std::int64_t begin = share * group_->rank();
  const std::int64_t end = begin + share;
  check_indices(indices, share * group_->size());
  // An index of another rank stands for any row here, and the row for zeros.
  const Tensor own = (indices >= begin) & (indices < end);
  const std::optional<std::int64_t> padding = padding_idx_ && *padding_idx_ >= begin && *padding_idx_ < end
                                                  ? std::optional(*padding_idx_ - begin)
                                                  : std::nullopt;
  Tensor rows = embedding(where(own, indices - begin, 0), weight, padding);
  rows = where(own.unsqueeze(-1), rows, 0.0);
  return options_.sequence_parallel ? reduce_scatter_to_sequence(rows, *group_) : reduce_from_group(rows, *group_);
}

nn::Embedding VocabParallelEmbedding::whole() const {
  const NoGradGuard no_grad;
  return nn::Embedding::from_pretrained(gather_from_group(weight, *group_, 0), false, padding_idx_);
}

}  // namespace tandem::inline v0::parallel
