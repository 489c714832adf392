#include <tandem/checkpoint/finite_watch.h>

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include <tandem/autograd/node.h>
#include <tandem/core/file.h>

namespace tandem::inline v0::checkpoint {

namespace {

bool is_on_cpu(const Tensor& tensor) { return tensor.device().type == DeviceType::cpu; }

// The first of these tensors that is not finite, or an empty text.
std::string first_nonfinite(const nn::NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors) {
    if (tensor.defined() && !autograd::all_finite(tensor)) {
      return name;
    }
  }
  return {};
}

}  // namespace

std::int64_t FiniteWatch::read_suspect(const std::string& path) {
  const std::string text = core::read_small_file(path).value_or(std::string());
  std::int64_t step = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), step);
  return error == std::errc() ? step : -1;
}

void FiniteWatch::write_suspect(const std::string& path, std::int64_t step) {
  core::replace_file(path, {std::to_string(step)});
}

bool FiniteWatch::after(std::int64_t step) {
  const bool is_cleared = step == suspect_;
  if (step + 1 == suspect_) {
    watch_.emplace();
  } else if (is_cleared) {
    watch_.reset();
    suspect_ = -1;
  }
  return is_cleared;
}

std::string FiniteWatch::what_is_wrong(const RunParts& parts, const Tensor* loss, bool waits) const {
  if (!enabled_) {
    return {};
  }
  const bool is_loss_bad = loss != nullptr && (waits || is_on_cpu(*loss)) && !autograd::all_finite(*loss);
  const auto left_out = std::find_if(parts.list().begin(), parts.list().end(), [&](const detail::Part& part) {
    return part.optimizer != nullptr && (waits || is_on_cpu(part.optimizer->parameters().front())) &&
           part.optimizer->found_nonfinite();
  });
  const std::string seen = watch_ ? watch_->first() : std::string();
  const std::string where = seen.empty() ? "" : fmt::format("; the first of this step: {}", seen);
  if (left_out == parts.list().end()) {
    return is_loss_bad ? "the loss is not finite" + where : "";
  }
  nn::NamedTensors gradients;
  for (const auto& [name, value] : parts.parameters()) {
    const autograd::Leaf* leaf = autograd::leaf_of(*value.unresolved());
    gradients.emplace_back(name, leaf != nullptr ? leaf->own_grad() : Tensor());
  }
  const std::string name = first_nonfinite(gradients);
  return fmt::format("a gradient is not finite{}{}, so {} left this update out{}",
                     name.empty() ? "" : fmt::format(", first that of '{}'", name),
                     is_loss_bad ? ", nor is the loss" : "", left_out->name, where);
}

}  // namespace tandem::inline v0::checkpoint
