#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include <tandem/autograd/parameter.h>
#include <tandem/core/check.h>
#include <tandem/kernels/grad_scale.h>
#include <tandem/optim/member.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/raw.h>

// Updates that ranks share out, each its parts of the parameters: see autograd::Sharding.

namespace tandem::inline v0::optim {

namespace {

// Position of GradScale::found_inf in a tensor of its fields.
constexpr std::int64_t kFoundInf = 1;
static_assert(offsetof(kernels::GradScale, found_inf) == kFoundInf * sizeof(double));

}  // namespace

void Optimizer::take_parts() {
  std::vector<Member*> changed;
  for (Member& member : members_) {
    const autograd::LeafPart wanted = member.part_now();
    if (member.part == wanted) {
      continue;
    }
    const std::int64_t begin = wanted.first_of(member.numel());
    const std::int64_t count = wanted.count_of(member.numel());
    const bool is_there = member.buffers.empty() || count == 0 ||
                          (member.begin() <= begin && begin + count <= member.begin() + member.count());
    check<ConfigError>(
        is_there,
        "{}: the state of parameter '{}' is there for {} of its {} elements, since a "
        "DistributedDataParallel that is gone has shared it out (shard). Take the whole state_dict() while "
        "the wrapper lives, and load it afterwards",
        name_, autograd::parameter_name(member.parameter), member.count(), member.numel());
    changed.push_back(&member);
  }
  const core::MemoryUseScope counted(core::MemoryUse::optimizer);
  for (Member* member : changed) {
    const std::int64_t before = member->begin();
    member->part = member->part_now();
    for (detail::View& buffer : member->buffers) {
      const detail::View own = detail::empty_view({member->count()}, buffer.dtype, buffer.device());
      if (member->count() > 0) {
        detail::copy(own, detail::narrow(buffer, 0, member->begin() - before, member->count()));
      }
      buffer = own;
    }
  }
}

std::vector<autograd::Sharding*> Optimizer::sharings() const {
  std::vector<autograd::Sharding*> sharings;
  for (const Member& member : members_) {
    autograd::Sharding* const by = member.part_now().by;
    if (by != nullptr && member.in_slice && std::ranges::find(sharings, by) == sharings.end()) {
      sharings.push_back(by);
    }
  }
  return sharings;
}

std::vector<std::shared_ptr<autograd::StepPartners>> Optimizer::partners() const {
  std::vector<std::shared_ptr<autograd::StepPartners>> all;
  for (std::size_t kind = 0; kind < autograd::kPartnerKinds; ++kind) {
    for (const Member& member : members_) {
      if (member.in_slice) {
        const auto of = static_cast<autograd::PartnerKind>(kind);
        const autograd::LeafPartners& known = member.leaf()->partners;
        std::shared_ptr<autograd::StepPartners> partners =
            of == autograd::PartnerKind::tensor ? known.require(of) : known.get(of);
        if (partners != nullptr && std::ranges::find(all, partners) == all.end()) {
          all.push_back(std::move(partners));
        }
      }
    }
  }
  return all;
}

void Optimizer::exchange_parts(autograd::Sharding& by) {
  std::vector<const autograd::Leaf*> leaves;
  for (const Member& member : members_) {
    if (member.in_slice && member.part_now().by == &by) {
      leaves.push_back(member.leaf());
    }
  }
  by.updated(leaves);
}

void Optimizer::agree_on_inf(const Tensor& found_inf) {
  const std::vector<std::shared_ptr<autograd::StepPartners>> all = partners();
  if (all.empty()) {
    return;
  }
  const detail::View found = detail::narrow(grad_scale_.raw(), 0, kFoundInf, 1);
  for (const std::shared_ptr<autograd::StepPartners>& each : all) {
    each->total(found, autograd::StepPartners::Total::largest);
  }
  const detail::View of_all = detail::empty_view({1}, DType::f32, found.device());
  detail::copy(of_all, found);
  const detail::View flag = found_inf.view({1}).raw();
  detail::pointwise(kernels::PointwiseOp::maximum, flag, {&flag, &of_all});
}

std::int64_t Optimizer::state_bytes() const {
  std::int64_t bytes = 0;
  for (const Member& member : members_) {
    for (const detail::View& buffer : member.buffers) {
      bytes += buffer.numel() * static_cast<std::int64_t>(item_size(buffer.dtype));
    }
  }
  return bytes;
}

Tensor Optimizer::state_of(const Member& member, std::size_t buffer, StateParts parts) const {
  const autograd::LeafPart now = member.part_now();
  const std::int64_t numel = member.numel();
  const detail::View& values = member.buffers[buffer];
  const Shape& sizes = member.parameter.unresolved()->view.sizes;
  if (member.part.by == nullptr) {  // all of it is here
    const bool is_cut = parts == StateParts::own && now.by != nullptr;
    return is_cut ? Tensor(detail::narrow(values, 0, now.first_of(numel), now.count_of(numel))).clone()
                  : Tensor(detail::narrow(values, 0, 0, numel)).clone().view(sizes);
  }
  // Another wrapper may have given this rank the same part.
  check<ConfigError>(now.by != nullptr && now.begin == member.part.begin && now.end == member.part.end,
                     "{}: state_dict: this rank has the state for {} of the {} elements of parameter '{}', and the "
                     "DistributedDataParallel that has shared it out (shard) is gone; take the state while it lives",
                     name_, member.count(), numel, autograd::parameter_name(member.parameter));
  const detail::View own = detail::narrow(values, 0, 0, member.count());
  if (parts == StateParts::own) {
    return Tensor(own).clone();
  }
  const Tensor whole = zeros({numel}, {.dtype = own.dtype, .device = own.device()});
  detail::copy(detail::narrow(whole.raw(), 0, member.begin(), member.count()), own);
  now.by->join(whole.raw());
  return whole.view(sizes);
}

}  // namespace tandem::inline v0::optim
