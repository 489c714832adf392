#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <ostream>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tandem/tandem.h>

// A list of the most common mistakes in training on several devices (docs/articles.md), with the messages that users
// read.

namespace tandem {
namespace {

using parallel::DataParallel;
using parallel::DistributedDataParallel;
using parallel::DistributedSampler;
using parallel::ProcessGroup;
using parallel::ProcessGroupGuard;

struct Net : nn::Module<Net> {
  nn::Linear fc1 = child("fc1", nn::Linear(4, 8));
  nn::Linear fc2 = child("fc2", nn::Linear(8, 3));
  bool uses_both = true;
  Tensor forward(const Tensor& x) const { return uses_both ? fc2(relu(fc1(x))) : fc1(x); }
};

// A wrapper lacks the members of the wrapped model, so the compiler reports their use; module() returns that model.
template <class T>
concept HasFc1 = requires(const T& model) { model.fc1; };
static_assert(HasFc1<Net>);
static_assert(!HasFc1<DataParallel<Net>> && !HasFc1<DistributedDataParallel<Net>>);

data::TensorDataset dataset() { return {randn({10, 4}), randint(0, 3, {10})}; }

StateDict prefixed(const StateDict& state, const std::string& prefix) {
  StateDict named;
  for (const auto& [name, value] : state) {
    named.set(prefix + name, value);
  }
  return named;
}

// Runs `body` with environment variables set as by a launcher.
void with_variables(const std::vector<std::pair<const char*, const char*>>& variables,
                    const std::function<void()>& body) {
  for (const auto& [name, value] : variables) {
    ::setenv(name, value, 1);
  }
  try {
    body();
  } catch (...) {
    for (const auto& [name, value] : variables) {
      ::unsetenv(name);
    }
    throw;
  }
  for (const auto& [name, value] : variables) {
    ::unsetenv(name);
  }
}

struct Mistake {
  const char* name;
  std::function<void()> make;
  const char* text;
};

void PrintTo(const Mistake& mistake, std::ostream* out) { *out << mistake.name; }

const Mistake kMistakes[] = {
    // ---- DataParallel ----
    {"model_elsewhere",
     [] {
       Net net;
       DataParallel replicas(net, {"cpu:1", "cpu:0"});
       replicas(randn({8, 4}));
     },
     "DataParallel: parameter 'fc1.weight' is on cpu:0, the first device is cpu:1: move the module there, "
     "model.to(\"cpu:1\") [TDM-E601]"},
    {"targets_elsewhere",
     [] {
       Net net;
       DataParallel replicas(net, {"cpu:0", "cpu:1"});
       nn::cross_entropy(replicas(randn({8, 4})), randint(0, 3, {8}, {.device = "cpu:1"}));
     },
     "cross_entropy: logits are on cpu:0, targets on cpu:1. Move the targets: y.to(\"cpu:0\") [TDM-E103]"},
    {"inputs_elsewhere", [] { Net()(randn({8, 4}, {.device = "cpu:1"})); },
     "Linear 'fc1': input is on cpu:1, weight on cpu:0. Move the input: x.to(\"cpu:0\") [TDM-E103]"},
    {"device_twice",
     [] {
       Net net;
       DataParallel replicas(net, {"cpu:0", "cpu:0"});
     },
     "replicate: cpu:0 is listed twice; two replicas there would only share its time. For a test, set "
     "allow_duplicate_devices [TDM-E602]"},
    {"sampler_of_one_rank_in_one_process", [] { DistributedSampler(dataset(), {.num_replicas = 2, .rank = 0}); },
     "warning: DistributedSampler: part 0 of 2 of the data, and there is no process group: a program that trains alone "
     "never sees the rest. DataParallel takes whole batches: leave the sampler out. Ranks make a ProcessGroupGuard "
     "first [TDM-W601]"},
    {"prefix_of_a_wrapper_and_not_strict",
     [] {
       Net net;
       net.load_state_dict(prefixed(net.state_dict(), "model."), false);
     },
     "load_state_dict: the state does not fit Net; nothing was loaded\n  all 4 names in the state begin with 'model.', "
     "such as 'model.fc1.weight': it is of a model that was wrapped; take the prefix off [TDM-E314]"},
    {"nothing_of_the_model_and_not_strict", [] { Net().load_state_dict(nn::Linear(2, 2).state_dict(), false); },
     "load_state_dict: the state does not fit Net; nothing was loaded\n  none of the 2 names in the state is one of "
     "this module's, such as 'fc1.weight' [TDM-E314]"},
    {"scalars_of_replicas",
     [] {
       struct Summed : nn::Module<Summed> {
         nn::Linear fc = child("fc", nn::Linear(4, 8));
         Tensor forward(const Tensor& x) const { return fc(x).sum(); }
       } net;
       DataParallel replicas(net, {"cpu:0", "cpu:1"});
       replicas(randn({8, 4}));
     },
     "warning: gather: the 2 replicas gave scalars, which become a vector of as many elements: take its mean, or "
     "compute the loss inside the replicas (DataParallel::loss) [TDM-W603]"},
    // ---- ranks ----
    {"no_group",
     [] {
       Net net;
       DistributedDataParallel ddp(net);
     },
     "default_group: this thread belongs to no rank. Join the job of a launcher with parallel::ProcessGroupGuard, or "
     "start ranks with parallel::spawn(n, fn), which runs fn as each of them [TDM-E603]"},
    {"sampler_without_a_group", [] { DistributedSampler sampler(dataset()); },
     "DistributedSampler: there is no default group to say who we are; make a ProcessGroupGuard first, or give "
     "num_replicas and rank [TDM-E604]"},
    {"no_address", [] { with_variables({{"RANK", "0"}, {"WORLD_SIZE", "2"}}, [] { ProcessGroupGuard guard; }); },
     "RANK is set, and MASTER_ADDR is missing [TDM-E606]: export MASTER_ADDR=<address of rank 0's host>, 127.0.0.1 "
     "on one host"},
    {"no_world_size", [] { with_variables({{"RANK", "0"}}, [] { ProcessGroupGuard guard; }); },
     "RANK is set, and WORLD_SIZE is missing [TDM-E606]: export WORLD_SIZE=<number of ranks>"},
    {"unknown_backend", [] { ProcessGroupGuard guard({.backend = "mpi"}); },
     "init_process_group: no backend is called \"mpi\"; expected \"gloo\", \"nccl\", or none for the best "
     "[TDM-E607]"},
    {"port_in_use",
     [] {
       const parallel::StoreServer other;
       try {
         ProcessGroupGuard guard({.init_method = fmt::format("tcp://127.0.0.1:{}", other.port()),
                                  .rank = 0,
                                  .world_size = 2,
                                  .init_timeout = std::chrono::seconds(2)});
       } catch (const Error& error) {
         std::string text = error.what();
         const std::string port = std::to_string(other.port());
         text.replace(text.find(port), port.size(), "12355");
         throw ConfigError(std::regex_replace(text, std::regex("pid [0-9]+ \\(.*\\)"), "pid 4711 (mlp)"));
       }
     },
     "rendezvous server: cannot listen at 127.0.0.1:12355 [TDM-E608]: Address already in use: pid 4711 (mlp) "
     "listens there; "
     "choose another port, or 0 for one that is free"},
    {"no_token", [] { parallel::StoreServer server({.host = "192.0.2.1", .port = 29500}); },
     "rendezvous at 192.0.2.1:29500: without a token anybody on that network could join the job [TDM-E609]. Make "
     "one and give it "
     "to every rank: export TANDEM_JOB_TOKEN=$(openssl rand -hex 32). To do without, on a network where you trust "
     "everybody: export TANDEM_INSECURE_RENDEZVOUS=1"},
    {"spawn_under_a_launcher",
     [] { with_variables({{"RANK", "1"}, {"WORLD_SIZE", "4"}}, [] { parallel::spawn(4, [](int) {}); }); },
     "spawn: a launcher has already made this process rank 1 (RANK is set), and 4 ranks in each of its processes "
     "are "
     "not meant: either start this program without the launcher, or call the function without spawn() [TDM-E610]"},
    {"device_by_rank",
     [] {
       with_variables({{"RANK", "9"}, {"LOCAL_RANK", "1"}}, [] { zeros({2}, {.device = Device(DeviceType::cpu, 9)}); });
     },
     "device 'cpu:9': there are 8 logical CPU devices (cpu:0 to cpu:7); set TANDEM_CPU_DEVICES for more. This is "
     "rank "
     "9, number 1 on its host: devices are counted on each host, take LOCAL_RANK [TDM-E115]"},
    {"wrapped_before_the_move",
     [] {
       parallel::spawn(1, [](int) {
         Net net;
         DistributedDataParallel ddp(net);
         net.to("cpu:3");
         ddp(randn({2, 4}, {.device = "cpu:3"}));
       });
     },
     "DistributedDataParallel: parameter 'fc2.bias' was moved to another device or dtype after the module was "
     "wrapped; "
     "move it first, then wrap it [TDM-E611]\n  in rank 0 of 1"},
    {"wrapped_twice",
     [] {
       parallel::spawn(1, [](int) {
         Net net;
         DistributedDataParallel ddp(net);
         DistributedDataParallel again(net);
       });
     },
     "DistributedDataParallel: parameter 'fc1.weight' belongs to another DistributedDataParallel already; wrap a "
     "module once, or again when that wrapper and the losses computed through it are gone [TDM-E612]\n  in rank 0 "
     "of "
     "1"},
    {"other_models",
     [] {
       parallel::spawn(2, [](int rank) {
         nn::Linear layer(4, rank + 2);
         DistributedDataParallel ddp(layer);
       });
     },
     "DistributedDataParallel: the ranks' models differ. Rank 0 has parameter 'weight': f32 [2, 4], strides [4, "
     "1], "
     "trained; rank 1 has parameter 'weight': f32 [3, 4], strides [4, 1], trained. All ranks must build the same "
     "model, and freeze the same parameters, before they wrap it [TDM-E613]\n  in rank 0 of 2"},
    {"the_module_called_itself",
     [] {
       parallel::spawn(1, [](int) {
         Net net;
         DistributedDataParallel ddp(net);
         ddp.module()(randn({2, 4})).sum().backward();
       });
     },
     "DistributedDataParallel: parameter 'fc2.weight' got a gradient in a backward pass in which no output of the "
     "wrapped module took part, as when ddp.module() is called itself: it would be that of this rank alone. Call "
     "ddp(...), and within ddp.no_sync() where gradients are to stay local [TDM-E614]\n  in rank 0 of 1"},
    {"a_layer_that_was_not_used",
     [] {
       parallel::spawn(2, [](int rank) {
         Net net;
         net.uses_both = rank == 0;
         DistributedDataParallel ddp(net);
         ddp(randn({2, 4})).sum().backward();
       });
     },
     "DistributedDataParallel: rank 1 has no gradient of 2 parameters in this backward pass: 'fc2.bias', "
     "'fc2.weight'. "
     "Each parameter must take part in each loss; freeze those that never do, before wrapping, or pass "
     "{.find_unused_parameters = true} [TDM-E615]\n  in rank 1 of 2"},
    {"tensor_of_another_rank",
     [] {
       parallel::spawn(2, [](ProcessGroup& group) {
         static Tensor shared;
         if (group.rank() == 0) {
           shared = ones({2});
         }
         group.barrier();
         if (group.rank() == 1) {
           shared + ones({2});
         }
       });
     },
     "add: expected all tensors to be on the same device, got [2] on cpu:0 and [2] on cpu:1; move one with "
     ".to(device) "
     "[TDM-E103]\n  in rank 1 of 2"},
    {"calls_in_another_order",
     [] {
       parallel::spawn(2, [](ProcessGroup& group) {
         const Tensor x = ones({2});
         group.rank() == 0 ? group.all_reduce(x) : group.broadcast(x, 0);
       });
     },
     "process group: its ranks made different calls, and none was carried out: rank 0: all_reduce f32 [2] sum "
     "(#0); "
     "rank 1: broadcast f32 [2] from 0 (#0). All ranks of a group must make the same calls in the same order "
     "[TDM-E616]\n  in rank 0 of 2"},
    {"sampler_for_another_number_of_ranks",
     [] {
       parallel::spawn(2, [](ProcessGroup& group) {
         if (group.rank() == 0) {
           DistributedSampler(dataset(), {.num_replicas = 1, .rank = 0});
         }
       });
     },
     "warning: DistributedSampler: it shares the data among 1 ranks, and the default group has 2: samples are used "
     "more than once [TDM-W602]"},
    {"sampler_rank", [] { DistributedSampler(dataset(), {.num_replicas = 2, .rank = 2}); },
     "Invalid rank 2, rank should be in the interval [0, 1] [TDM-E605]"},
    {"sampler_and_shuffle",
     [] {
       parallel::spawn(1, [](int) {
         const data::TensorDataset samples = dataset();
         data::DataLoader(samples, {.shuffle = true, .sampler = std::make_shared<DistributedSampler>(samples)});
       });
     },
     "DataLoader: sampler option is mutually exclusive with shuffle [TDM-E501]\n  in rank 0 of 1"},
};

class ParallelMistake : public ::testing::TestWithParam<Mistake> {};

TEST_P(ParallelMistake, IsExplained) {
  std::string text = "nothing was thrown";
  std::mutex mutex;
  set_warning_handler([&](const std::string& warning) {
    const std::lock_guard lock(mutex);
    text = "warning: " + warning;
  });
  try {
    GetParam().make();
  } catch (const Error& error) {
    text = error.what();
  }
  set_warning_handler({});
  EXPECT_EQ(text, GetParam().text);
  EXPECT_LE(text.size(), 80U * 24U) << "more than a screen";
}

INSTANTIATE_TEST_SUITE_P(List, ParallelMistake, ::testing::ValuesIn(kMistakes),
                         [](const auto& test) { return std::string(test.param.name); });

// ---- mistakes in other frameworks that work here ----

TEST(NoMistake, AWrappedModelWasSaved) {
  Net net;
  const Net other;
  const nn::LoadReport report = net.load_state_dict(prefixed(other.state_dict(), "module."));
  EXPECT_EQ(report.stripped, "module.");
  EXPECT_EQ(net.fc1.weight.to_vector<float>(), other.fc1.weight.to_vector<float>());
  const DataParallel replicas(net, {"cpu:0", "cpu:1"});
  EXPECT_EQ(replicas.module().state_dict().begin()->first, "fc1.weight") << "wrappers add no prefix";
}

TEST(NoMistake, DataParallelWithoutGpus) {
  Net net;
  DataParallel replicas(net);
  if (cuda::device_count() == 0) {
    const Tensor x = randn({3, 4});
    EXPECT_EQ(replicas(x).to_vector<float>(), net(x).to_vector<float>());
  }
  EXPECT_EQ(replicas.devices().size(), static_cast<std::size_t>(cuda::device_count()));
}

TEST(NoMistake, WrappedBeforeTheMoveAndMovedBeforeItIsCalled) {
  Net net;
  DataParallel replicas(net, {"cpu:1", "cpu:2"});
  net.to("cpu:1");
  EXPECT_EQ(replicas(randn({4, 4})).device(), Device("cpu:1"));
}

TEST(NoMistake, EachRankWithASeedOfItsOwn) {
  parallel::spawn(2, [](ProcessGroup& group) {
    manual_seed(static_cast<std::uint64_t>(group.rank()));
    Net net;
    const DistributedDataParallel ddp(net);
    const Tensor largest = net.fc1.weight.detach().clone();
    const Tensor smallest = largest.clone();
    group.all_reduce(largest, parallel::ReduceOp::max);
    group.all_reduce(smallest, parallel::ReduceOp::min);
    EXPECT_EQ(largest.to_vector<float>(), smallest.to_vector<float>());
  });
}

TEST(NoMistake, SetEpochWasForgotten) {
  parallel::spawn(2, [](int) {
    const data::TensorDataset samples(arange(0, 64));
    const DistributedSampler sampler(samples);
    EXPECT_NE(sampler.indices(), sampler.indices());
  });
}

TEST(NoMistake, RankZeroEvaluatesAlone) {
  parallel::spawn(2, [](ProcessGroup& group) {
    nn::Sequential model(nn::Linear(4, 8), nn::BatchNorm1d(8), nn::Linear(8, 3));
    DistributedDataParallel ddp(model);
    ddp(randn({4, 4})).sum().backward();
    if (group.rank() == 0) {
      const NoGradGuard no_grad;
      model.eval();
      EXPECT_EQ(ddp(randn({4, 4})).size(0), 4);
      model.train();
    }
    ddp(randn({4, 4})).sum().backward();
  });
}

TEST(NoMistake, AGroupIsLeftWithoutACall) {
  for (int again = 0; again < 2; ++again) {
    const ProcessGroupGuard guard;
    EXPECT_EQ(parallel::get_world_size(), 1);
  }
  EXPECT_FALSE(parallel::is_initialized());
}

}  // namespace
}  // namespace tandem
