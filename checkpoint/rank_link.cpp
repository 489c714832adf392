#include <tandem/checkpoint/rank_link.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>
#include <string>

#include <fmt/format.h>
#include <tandem/autograd/sharding.h>

#include <tandem/checkpoint/stored_tensors.h>
#include <tandem/core/check.h>
#include <tandem/core/grad_mode.h>
#include <tandem/parallel/comm/comm_queue.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::checkpoint {

namespace {

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

char* memory_of(const Tensor& tensor) { return static_cast<char*>(tensor.raw().data()); }

Tensor bytes_tensor(std::size_t size) {
  return zeros({static_cast<std::int64_t>(size)}, {.dtype = DType::u8, .device = "cpu"});
}

template <class T>
Tensor on_host(const std::vector<T>& values) {
  return from_data(values, {static_cast<std::int64_t>(values.size())}, {.device = "cpu"});
}

}  // namespace

RankLink::RankLink() {
  if (parallel::is_initialized() && parallel::get_world_size() > 1) {
    parallel::ProcessGroup& world = parallel::default_group();
    group_ = world.new_group(all_ranks(world.size()));
    device_ = group_->queue()->backend().gpu().value_or(Device());
  }
}

std::string RankLink::name() const {
  return fmt::format("rank {}", group_ ? group_->queue()->names()->rank(rank()) : rank());
}

Tensor RankLink::sent(const Tensor& tensor) const { return tensor.to(device_); }

void RankLink::broadcast(Tensor& tensor, int source) const {
  const Tensor moved = sent(tensor);
  group_->broadcast(moved, source);
  tensor = moved.to("cpu");
}

std::vector<double> RankLink::largest(const std::vector<double>& values) const {
  if (!group_) {
    return values;
  }
  const NoGradGuard no_grad;
  const Tensor joined = sent(on_host(values));
  group_->all_reduce(joined, parallel::ReduceOp::max);
  return joined.to_vector<double>();
}

void RankLink::share(StateDict& state, Metadata& metadata, int source) const {
  if (!group_) {
    return;
  }
  const NoGradGuard no_grad;
  const bool gives = rank() == source;
  EncodedFile file;
  if (gives) {
    file = encode(state, metadata);
  }
  const std::vector<std::string_view> parts = file.parts();
  std::size_t whole = 0;
  for (const std::string_view part : parts) {
    whole += part.size();
  }
  Tensor sizes =
      on_host<std::int64_t>({static_cast<std::int64_t>(file.header.size()), static_cast<std::int64_t>(whole)});
  broadcast(sizes, source);
  const auto size = sizes.to_vector<std::int64_t>();
  Tensor bytes = bytes_tensor(static_cast<std::size_t>(size[0]));
  std::memcpy(memory_of(bytes), file.header.data(), file.header.size());
  broadcast(bytes, source);
  const SafetensorsHeader header("another rank's state", static_cast<std::uint64_t>(size[1]),
                                 [&](std::uint64_t offset, std::span<char> out) {
                                   std::memcpy(out.data(), memory_of(bytes) + offset, out.size());
                                 });
  StateDict shared;
  for (std::size_t place = 0; place < header.size(); ++place) {
    const SafetensorsHeader::Entry& entry = header.entry(place);
    Tensor tensor =
        gives ? file.tensors[place] : empty(header.shape(entry), {.dtype = *entry.type->dtype, .device = "cpu"});
    broadcast(tensor, source);
    shared.set(entry.name, tensor);
  }
  if (!gives) {
    state = std::move(shared);
    metadata = header.metadata();
  }
}

std::vector<StateDict> RankLink::gather(const StateDict& own) const {
  if (!group_) {
    return {own};
  }
  const NoGradGuard no_grad;
  const std::string bytes = to_bytes(own);
  const auto count = static_cast<std::size_t>(size());
  const Tensor lengths = sent(zeros({size()}, {.dtype = DType::i64, .device = "cpu"}));
  group_->all_gather_into_tensor(lengths, sent(on_host<std::int64_t>({static_cast<std::int64_t>(bytes.size())})));
  const auto sizes = lengths.to_vector<std::int64_t>();
  const auto most = static_cast<std::size_t>(*std::max_element(sizes.begin(), sizes.end()));
  const Tensor mine = bytes_tensor(most);
  std::memcpy(memory_of(mine), bytes.data(), bytes.size());
  const Tensor all = sent(bytes_tensor(most * count));
  group_->all_gather_into_tensor(all, sent(mine));
  std::vector<StateDict> states;
  if (leads()) {
    const Tensor here = all.to("cpu");
    for (std::size_t rank = 0; rank < count; ++rank) {
      states.push_back(from_bytes({memory_of(here) + rank * most, static_cast<std::size_t>(sizes[rank])},
                                  fmt::format("the state of rank {}", rank)));
    }
  }
  return states;
}

void RankLink::compare(const nn::NamedTensors& parameters) const {
  if (!group_ || parameters.empty()) {
    return;
  }
  const NoGradGuard no_grad;
  std::vector<Tensor> tensors;
  for (const auto& [name, value] : parameters) {
    tensors.push_back(value);
  }
  const autograd::ReadingScope reads(tensors);
  std::vector<std::int64_t> hashes;
  for (const auto& [name, value] : parameters) {
    hashes.push_back(static_cast<std::int64_t>(hash_of(value)));
  }
  const auto count = static_cast<std::int64_t>(hashes.size());
  const Tensor all = sent(zeros({size() * count}, {.dtype = DType::i64, .device = "cpu"}));
  group_->all_gather_into_tensor(all, sent(on_host(hashes)));
  const auto found = all.to_vector<std::int64_t>();
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    for (int rank = 1; rank < size(); ++rank) {
      check<ValueError>(
          found[static_cast<std::size_t>(rank) * hashes.size() + i] == found[i],
          "the ranks' models have drifted apart: '{}' on rank {} is not that of rank 0. Nothing was saved. "
          "Something has changed parameters or gradients on one rank alone, or memory is failing",
          parameters[i].first, rank);
    }
  }
}

}  // namespace tandem::inline v0::checkpoint
