#include <tandem/parallel/distributed/model_check.h>

#include <algorithm>
#include <cstdint>
#include <sstream>

#include <fmt/format.h>

#include <tandem/core/check.h>
#include <tandem/core/grad_mode.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::parallel {

namespace {

std::int64_t hash_of(const std::string& text) {
  std::uint64_t hash = 14695981039346656037U;  // FNV-1a
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  }
  return static_cast<std::int64_t>(hash >> 12);  // what a Scalar holds exactly
}

// Small things for comparing stay on the CPU, which each backend can carry.
TensorOptions on_cpu(DType dtype) { return {.dtype = dtype, .device = Device(DeviceType::cpu, 0)}; }

std::vector<Tensor> gathered(ProcessGroup& group, const Tensor& mine) {
  std::vector<Tensor> all;
  for (int rank = 0; rank < group.size(); ++rank) {
    all.push_back(empty_like(mine));
  }
  group.all_gather(all, mine);
  return all;
}

// What all ranks wrote, a string each.
std::vector<std::string> gathered(ProcessGroup& group, const std::string& mine) {
  std::int64_t longest = 0;
  for (const Tensor& length : gathered(group, full({1}, static_cast<std::int64_t>(mine.size()), on_cpu(DType::i64)))) {
    longest = std::max(longest, length.item<std::int64_t>());
  }
  Tensor text = zeros({longest}, on_cpu(DType::u8));
  std::copy(mine.begin(), mine.end(), text.mutable_data<std::uint8_t>());
  std::vector<std::string> texts;
  for (const Tensor& bytes : gathered(group, text)) {
    const auto span = bytes.span<std::uint8_t>();
    texts.emplace_back(span.begin(), std::find(span.begin(), span.end(), std::uint8_t{0}));
  }
  return texts;
}

std::string line_of(std::istringstream& lines) {
  std::string line;
  return std::getline(lines, line) ? line : "nothing more";
}

[[noreturn]] void throw_difference(const std::vector<std::string>& texts, const char* what, const char* advice) {
  const auto odd = std::find_if(texts.begin(), texts.end(), [&](const std::string& text) { return text != texts[0]; });
  std::istringstream first(texts[0]);
  std::istringstream other(*odd);
  std::string expected;
  std::string got;
  do {
    expected = line_of(first);
    got = line_of(other);
  } while (expected == got);
  fail<ConfigError>("DistributedDataParallel: the ranks' {} differ. Rank 0 has {}; rank {} has {}. {}", what, expected,
                    odd - texts.begin(), got, advice);
}

}  // namespace

std::vector<std::string> describe(const nn::ModuleRef& module) {
  std::vector<std::string> lines;
  const auto add = [&](const char* what, const std::string& name, const Tensor& tensor, const char* end) {
    lines.push_back(
        fmt::format("{} '{}': {} {}, strides {}{}", what, name, tensor.dtype(), tensor.shape(), tensor.strides(), end));
  };
  for (const auto& [name, parameter] : module.named_parameters()) {
    add("parameter", name, parameter, parameter.requires_grad() ? ", trained" : ", frozen");
  }
  for (const auto& [name, buffer] : module.named_buffers()) {
    add("buffer", name, buffer, "");
  }
  return lines;
}

void check_same(ProcessGroup& group, const std::vector<std::string>& lines, const char* what, const char* advice) {
  const std::string text = fmt::format("{}", fmt::join(lines, "\n"));
  const std::vector<Tensor> hashes = gathered(group, full({1}, hash_of(text), on_cpu(DType::i64)));
  const bool same = std::all_of(hashes.begin(), hashes.end(), [&](const Tensor& hash) {
    return hash.item<std::int64_t>() == hashes.front().item<std::int64_t>();
  });
  if (!same) {
    throw_difference(gathered(group, text), what, advice);
  }
}

void broadcast_state(ProcessGroup& group, const nn::ModuleRef& module) {
  const NoGradGuard no_grad;
  for (const Tensor& parameter : module.parameters()) {
    group.broadcast(parameter, 0);
  }
  for (const Tensor& buffer : module.buffers()) {
    group.broadcast(buffer, 0);
  }
}

}  // namespace tandem::inline v0::parallel
