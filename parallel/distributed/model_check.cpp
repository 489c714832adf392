#include <tandem/parallel/distributed/model_check.h>

#include <algorithm>
#include <cstdint>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include <tandem/autograd/parameter.h>
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

// Small tensors for comparisons stay on the CPU, which every backend supports.
TensorOptions on_cpu(DType dtype) { return {.dtype = dtype, .device = Device(DeviceType::cpu, 0)}; }

// Gathers every rank's `mine`, one row for each rank.
Tensor gathered(ProcessGroup& group, const Tensor& mine) {
  const Tensor all = empty({group.size(), mine.numel()}, on_cpu(mine.dtype()));
  group.all_gather_into_tensor(all, mine);
  return all;
}

// Gathers every rank's text.
std::vector<std::string> gathered(ProcessGroup& group, const std::string& mine) {
  const Tensor longest = full({1}, static_cast<std::int64_t>(mine.size()), on_cpu(DType::i64));
  group.all_reduce(longest, ReduceOp::max);
  Tensor text = zeros({longest.item<std::int64_t>()}, on_cpu(DType::u8));
  std::copy(mine.begin(), mine.end(), text.mutable_data<std::uint8_t>());
  const Tensor all = gathered(group, text);
  std::vector<std::string> texts;
  for (int rank = 0; rank < group.size(); ++rank) {
    const auto span = all[rank].span<std::uint8_t>();
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

bool is_wrapped(const Tensor& parameter) {
  const autograd::Leaf* leaf = autograd::leaf_of(*parameter.unresolved());
  return leaf != nullptr && leaf->observer != nullptr;
}

std::vector<std::string> describe(const nn::ModuleRef& module) {
  std::vector<std::string> lines;
  const auto add = [&](const char* what, const std::string& name, const Tensor& tensor, const char* end) {
    lines.push_back(
        fmt::format("{} '{}': {} {}, strides {}{}", what, name, tensor.dtype(), tensor.shape(), tensor.strides(), end));
  };
  for (const auto& [name, parameter] : module.named_parameters()) {
    if (is_wrapped(parameter)) {
      lines.push_back(fmt::format("parameter '{}' in another DistributedDataParallel already", name));
    } else {
      add("parameter", name, parameter, parameter.requires_grad() ? ", trained" : ", frozen");
    }
  }
  for (const auto& [name, buffer] : module.named_buffers()) {
    add("buffer", name, buffer, "");
  }
  return lines;
}

void check_same(ProcessGroup& group, const std::vector<std::string>& lines, const char* what, const char* advice) {
  const std::string text = fmt::format("{}", fmt::join(lines, "\n"));
  const auto hashes = gathered(group, full({1}, hash_of(text), on_cpu(DType::i64))).to_vector<std::int64_t>();
  if (std::ranges::count(hashes, hashes.front()) != group.size()) {
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

WrappedModule::WrappedModule(nn::ModuleRef module)
    : module_(std::move(module)),
      frozen_(module_.parameters()),
      buffers_(module_.buffers()),
      structure_version_(nn::detail::structure_version()) {
  std::erase_if(frozen_, [](const Tensor& parameter) { return parameter.requires_grad(); });
}

void WrappedModule::check_unchanged(const std::vector<BucketMember>& trained, const autograd::LeafObserver& observer) {
  for (const BucketMember& member : trained) {
    check<ConfigError>(member.leaf->place == member.place,
                       "DistributedDataParallel: parameter '{}' was moved to another device or dtype after the module "
                       "was wrapped; move it first, then wrap it",
                       member.name);
    check<ConfigError>(static_cast<bool>(member.parameter.unresolved()->history),
                       "DistributedDataParallel: parameter '{}' was frozen after the module was wrapped; freeze it on "
                       "all ranks, then wrap the module again",
                       member.name);
  }
  for (const Tensor& parameter : frozen_) {
    check<ConfigError>(!parameter.unresolved()->history,
                       "DistributedDataParallel: parameter '{}' requires a gradient since the module was wrapped; thaw "
                       "it on all ranks, then wrap the module again",
                       autograd::parameter_name(parameter));
  }
  const std::uint64_t version = nn::detail::structure_version();
  if (version == structure_version_) {
    return;  // no module of the process has changed
  }
  const std::size_t parameters_then = trained.size() + frozen_.size();
  const nn::NamedTensors parameters = module_.named_parameters();
  check<ConfigError>(parameters.size() == parameters_then,
                     "DistributedDataParallel: the module has {} parameters, and had {} when it was wrapped; build it "
                     "first, then wrap it",
                     parameters.size(), parameters_then);
  const auto among = [](const Tensor& one, const std::vector<Tensor>& tensors) {
    return std::any_of(tensors.begin(), tensors.end(),
                       [&](const Tensor& t) { return t.unresolved() == one.unresolved(); });
  };
  constexpr const char* kNew =
      "DistributedDataParallel: {} '{}' is another one than when the module was wrapped; replace layers first, then "
      "wrap the module";
  for (const auto& [name, parameter] : parameters) {
    const autograd::Leaf* leaf = autograd::leaf_of(*parameter.unresolved());
    check<ConfigError>((leaf != nullptr && leaf->observer == &observer) || among(parameter, frozen_), kNew, "parameter",
                       name);
  }
  for (const auto& [name, buffer] : module_.named_buffers()) {
    check<ConfigError>(among(buffer, buffers_), kNew, "buffer", name);
  }
  structure_version_ = version;
}

}  // namespace tandem::inline v0::parallel
