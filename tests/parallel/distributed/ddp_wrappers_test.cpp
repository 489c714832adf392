#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "parallel/models.h"
#include "parallel/ranks.h"

// One backward pass through several wrappers.

namespace tandem::test {
namespace {

using parallel::DistributedDataParallel;
using parallel::ProcessGroup;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// A layer with one weight.
nn::Linear weight_of(double value) {
  nn::Linear layer(1, 1, {.bias = false});
  const NoGradGuard no_grad;
  layer.weight.copy_(full({1, 1}, value));
  return layer;
}

float value_of(const Tensor& tensor) { return tensor.detach().to("cpu:0").item<float>(); }

// One optimiser serves both wrappers and steps in a hook.
TEST(DdpWrappers, OfOnePassAreAllReducedBeforeAHookOfAnyRuns) {
  as_ranks(2, [](ProcessGroup& group) {
    nn::Linear encoder = weight_of(1);
    nn::Linear decoder = weight_of(2);
    DistributedDataParallel encode(encoder);
    DistributedDataParallel decode(decoder);
    for (nn::Linear* hooked : {&encoder, &decoder}) {
      std::vector<float> seen;
      const HookHandle hook = hooked->weight.register_post_accumulate_grad_hook(
          [&](const Tensor&) { seen = {value_of(encoder.weight.grad()), value_of(decoder.weight.grad())}; });
      encoder.zero_grad();
      decoder.zero_grad();
      decode(encode(full({1, 1}, 1.0 + group.rank()))).sum().backward();
      EXPECT_THAT(seen, testing::ElementsAre(3.0F, 1.5F)) << "means over the ranks";
    }
  });
}

// The calls of different comm hooks look equal, and may use another group.
TEST(DdpWrappers, WithCommHooksAreNotTakenForEachOther) {
  for (const bool sub_group : {false, true}) {
    std::vector<std::string> texts(2);
    as_ranks(2, [&](ProcessGroup& group) {
      nn::Linear critics[] = {weight_of(1), weight_of(2)};
      DistributedDataParallel first(critics[0]);
      DistributedDataParallel second(critics[1]);
      const auto pair = group.new_group({0, 1});
      const auto over_pair = [&](ProcessGroup&, const parallel::GradBucket& bucket) -> std::function<void()> {
        pair->all_reduce(bucket.gradients, parallel::ReduceOp::avg);
        return {};
      };
      for (auto* ddp : {&first, &second}) {
        sub_group ? ddp->register_comm_hook(over_pair) : ddp->register_comm_hook(parallel::bf16_compress_hook());
      }
      const Tensor x = full({1, 1}, 1.0);
      first(x).sum().backward();
      second(x).sum().backward();
      auto& next = group.rank() == 0 ? first : second;
      texts[static_cast<std::size_t>(group.rank())] = message_of<CommError>([&] { next(x).sum().backward(); });
    });
    for (const std::string& text : texts) {
      EXPECT_THAT(text,
                  AllOf(HasSubstr("before the comm hook of DistributedDataParallel #0; rank 1: all_reduce i32 [1] "
                                  "max (#"),
                        HasSubstr("), before the comm hook of DistributedDataParallel #1. ")));
    }
  }
}

TEST(DdpWrappers, RunNoHookWhereAnotherOneCouldNotReduce) {
  std::string text;
  as_ranks(2, [&](ProcessGroup& group) {
    int hooks = 0;
    nn::Linear encoder = weight_of(1);
    nn::Linear decoder = weight_of(1);
    DistributedDataParallel encode(encoder);
    DistributedDataParallel decode(decoder);
    decode.register_comm_hook([](ProcessGroup& ranks, const parallel::GradBucket&) -> std::function<void()> {
      if (ranks.rank() == 1) {
        throw ValueError("not this one");
      }
      return {};
    });
    const HookHandle hook = encoder.weight.register_post_accumulate_grad_hook([&](const Tensor&) { ++hooks; });
    const Tensor x = ones({1, 1});
    if (group.rank() == 1) {
      EXPECT_THAT(message_of<ValueError>([&] { decode(encode(x)).sum().backward(); }), HasSubstr("not this one"));
      EXPECT_EQ(hooks, 0);
    } else {
      text = message_of<CommError>([&] {
        decode(encode(x)).sum().backward();
        decode(encode(x)).sum().backward();
      });
    }
  });
  EXPECT_THAT(text, HasSubstr("aborted by rank 1: not this one"));
}

// The failed wrapper's hooks do not run, but those of the other ranks do.
TEST(DdpWrappers, WhoseHooksAreLeftOutAreToldOfTheOneThatFailed) {
  std::string text;
  as_ranks(2, [&](ProcessGroup& group) {
    const auto pair = group.new_group({0, 1});
    nn::Linear first = weight_of(1);
    nn::Linear second = weight_of(1);
    DistributedDataParallel one(first);
    DistributedDataParallel other(second, {.process_group = pair.get()});
    const Tensor x = ones({1, 1});
    HookHandle hook;
    if (group.rank() == 1) {
      hook = first.weight.register_post_accumulate_grad_hook([](const Tensor&) { throw ValueError("no step today"); });
      EXPECT_THROW((one(x) + other(x)).sum().backward(), ValueError);
    } else {
      (one(x) + other(x)).sum().backward();
      text = message_of<CommError>([&] { other(x).sum().backward(); });
    }
  });
  EXPECT_THAT(text, HasSubstr("aborted by rank 1: its backward pass failed: no step today"));
}

/// A module whose depth in the graph grows with the length of its input.
struct Recurrent : nn::Module<Recurrent> {
  nn::Linear layer = child("layer", nn::Linear(2, 2));
  Tensor forward(const Tensor& x, int length) const {
    Tensor state = x;
    for (int i = 0; i < length; ++i) {
      state = tanh(layer(state) + x);
    }
    return state;
  }
};

template <class Text, class Image>
Tensor loss_of(Text& text, Image& image, int length) {
  return (text(full({3, 2}, 0.5), length) * image(full({3, 2}, 2.0), 4)).mean();
}

// Both gradients have equal sizes, so each could be averaged with the other.
TEST(DdpWrappers, ReduceInOneOrderThoughTheirDepthsDifferByRank) {
  constexpr int kShort = 1;
  constexpr int kLong = 9;
  for (const bool joined : {false, true}) {
    as_ranks(2, [joined](ProcessGroup& group) {
      auto text = seeded<Recurrent>(DType::f32);
      auto image = seeded<Recurrent>(DType::f32);
      loss_of(text, image, kShort).backward();
      loss_of(text, image, kLong).backward();
      const Tensor of_both[] = {text.layer.weight.grad() * 0.5, image.layer.weight.grad() * 0.5};
      text.zero_grad();
      image.zero_grad();
      DistributedDataParallel wrapped_text(text);
      DistributedDataParallel wrapped_image(image);
      std::optional<parallel::Join> join;
      if (joined) {
        join.emplace(std::tie(wrapped_text, wrapped_image));
      }
      for (const int first : {0, 1}) {
        text.zero_grad();
        image.zero_grad();
        loss_of(wrapped_text, wrapped_image, group.rank() == first ? kShort : kLong).backward();
        EXPECT_LE(difference(text.layer.weight.grad(), of_both[0]), 1e-6);
        EXPECT_LE(difference(image.layer.weight.grad(), of_both[1]), 1e-6);
      }
      if (joined) {
        join->finish([] {}, [] {});
      }
    });
  }
}

}  // namespace
}  // namespace tandem::test
