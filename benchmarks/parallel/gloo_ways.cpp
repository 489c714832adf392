#include <stdexcept>  // Gloo's headers use it without including it

#include <utility>

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/barrier_all_to_all.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/reduce_scatter.h>
#include <gloo/scatter.h>

#include "parallel/gloo_ways.h"

namespace tandem::parallel {
namespace {

using Bare = std::shared_ptr<gloo::Context>;

constexpr void (*kSum)(void*, const void*, const void*, std::size_t) = &gloo::sum<float>;

// Gloo's older algorithms are objects.
template <class Algorithm, class... Arguments>
std::function<void(int)> object(const Bare& bare, Arguments&&... arguments) {
  const auto algorithm = std::make_shared<Algorithm>(bare, std::forward<Arguments>(arguments)...);
  return [algorithm](int) { algorithm->run(); };
}

// What both sides need, in the types of each.
struct Setting {
  Setting(ProcessGroup& its_group, const Bare& its_bare, Numbers& numbers)
      : group(its_group),
        bare(its_bare),
        in_tensor(numbers.in),
        out_tensor(numbers.out),
        in(numbers.in.mutable_data<float>()),
        out(numbers.out.mutable_data<float>()),
        part(numbers.part),
        numel(numbers.numel) {}

  Tensor in_part() const { return in_tensor.narrow(0, 0, part); }
  Tensor out_part() const { return out_tensor.narrow(0, 0, part); }
  bool is_root(int root) const { return bare->rank == root; }

  ProcessGroup& group;
  Bare bare;
  Tensor in_tensor;
  Tensor out_tensor;
  float* in;
  float* out;
  std::int64_t part;
  std::int64_t numel;
};

Contest all_reduce(const Setting& s) {
  using Algorithm = gloo::AllreduceOptions::Algorithm;
  const auto gloos = [s](Algorithm algorithm) {
    return [s, algorithm](int) {
      gloo::AllreduceOptions options(s.bare);
      options.setOutput(s.out, s.numel);
      options.setReduceFunction(kSum);
      options.setAlgorithm(algorithm);
      gloo::allreduce(options);
    };
  };
  const auto plan = std::make_shared<PlannedCollective>(s.group.plan_all_reduce(s.out_tensor.raw()));
  return {.ours = {{"all_reduce", [s](int) { s.group.all_reduce(s.out_tensor); }},
                   {"planned all_reduce", [plan](int) { plan->run(); }}},
          .gloos = {{"ring", gloos(Algorithm::RING)},
                    {"bcube", gloos(Algorithm::BCUBE)},
                    {"halving-doubling", object<gloo::AllreduceHalvingDoubling<float>>(s.bare, std::vector{s.out},
                                                                                       static_cast<int>(s.numel))}},
          .results = s.numel};
}

Contest broadcast(const Setting& s) {
  return {.ours = {{"broadcast", [s](int root) { s.group.broadcast(s.out_tensor, root); }}},
          .gloos = {{"tree",
                     [s](int root) {
                       gloo::BroadcastOptions options(s.bare);
                       options.setOutput(s.out, s.numel);
                       options.setRoot(root);
                       gloo::broadcast(options);
                     }}},
          .results = s.numel};
}

Contest all_gather(const Setting& s) {
  return {
      .ours = {{"all_gather", [s, part = s.in_part()](int) { s.group.all_gather_into_tensor(s.out_tensor, part); }}},
      .gloos = {{"ring",
                 [s](int) {
                   gloo::AllgatherOptions options(s.bare);
                   options.setInput(s.in, s.part);
                   options.setOutput(s.out, s.numel);
                   gloo::allgather(options);
                 }}},
      .results = s.numel};
}

Contest reduce(const Setting& s) {
  return {.ours = {{"reduce", [s](int root) { s.group.reduce(s.out_tensor, root); }}},
          .gloos = {{"ring",
                     [s](int root) {
                       gloo::ReduceOptions options(s.bare);
                       options.setOutput(s.out, s.numel);
                       options.setReduceFunction(kSum);
                       options.setRoot(root);
                       gloo::reduce(options);
                     }}},
          .results = s.is_root(0) ? s.numel : 0};
}

Contest gather(const Setting& s) {
  return {.ours = {{"gather",
                    [s, part = s.in_part(), parts = s.out_tensor.chunk(s.bare->size)](int root) {
                      s.group.gather(part, s.is_root(root) ? parts : std::vector<Tensor>(), root);
                    }}},
          .gloos = {{"direct",
                     [s](int root) {
                       gloo::GatherOptions options(s.bare);
                       options.setInput(s.in, s.part);
                       if (s.is_root(root)) {
                         options.setOutput(s.out, s.numel);
                       }
                       options.setRoot(root);
                       gloo::gather(options);
                     }}},
          .results = s.is_root(0) ? s.numel : 0};
}

Contest scatter(const Setting& s) {
  std::vector<float*> from;
  for (int rank = 0; rank < s.bare->size; ++rank) {
    from.push_back(s.in + rank * s.part);
  }
  return {.ours = {{"scatter",
                    [s, part = s.out_part(), parts = s.in_tensor.chunk(s.bare->size)](int root) {
                      s.group.scatter(part, s.is_root(root) ? parts : std::vector<Tensor>(), root);
                    }}},
          .gloos = {{"direct",
                     [s, from](int root) {
                       gloo::ScatterOptions options(s.bare);
                       if (s.is_root(root)) {
                         options.setInputs(from, s.part);
                       }
                       options.setOutput(s.out, s.part);
                       options.setRoot(root);
                       gloo::scatter(options);
                     }}},
          .results = s.part};
}

Contest all_to_all(const Setting& s) {
  return {.ours = {{"all_to_all", [s](int) { s.group.all_to_all_single(s.out_tensor, s.in_tensor); }}},
          .gloos = {{"direct",
                     [s](int) {
                       gloo::AlltoallOptions options(s.bare);
                       options.setInput(s.in, s.numel);
                       options.setOutput(s.out, s.numel);
                       gloo::alltoall(options);
                     }}},
          .results = s.numel};
}

// Gloo changes the tensor that it reduces, and leaves this rank's part at its beginning.
Contest reduce_scatter(const Setting& s) {
  const std::vector<int> parts(static_cast<std::size_t>(s.bare->size), static_cast<int>(s.part));
  return {
      .ours = {{"reduce_scatter", [s, part = s.out_part()](int) { s.group.reduce_scatter_tensor(part, s.in_tensor); }}},
      .gloos = {{"halving-doubling", object<gloo::ReduceScatterHalvingDoubling<float>>(
                                         s.bare, std::vector{s.out}, static_cast<int>(s.numel), parts)}},
      .results = s.part};
}

}  // namespace

std::vector<Contest> contests(ProcessGroup& group, const Bare& bare, Numbers& numbers) {
  const Setting s(group, bare, numbers);
  std::vector<Contest> all;
  for (const auto make : {all_reduce, broadcast, all_gather, reduce, gather, scatter, all_to_all, reduce_scatter}) {
    all.push_back(make(s));
  }
  return all;
}

Contest barriers(ProcessGroup& group, const Bare& bare) {
  return {.ours = {{"barrier", [&group](int) { group.barrier(); }}},
          .gloos = {{"dissemination",
                     [bare](int) {
                       gloo::BarrierOptions options(bare);
                       gloo::barrier(options);
                     }},
                    {"all to all", object<gloo::BarrierAllToAll>(bare)}},
          .results = 0};
}

}  // namespace tandem::parallel
