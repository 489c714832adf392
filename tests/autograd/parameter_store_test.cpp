#include <tandem/autograd/parameter_store.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/autograd/parameter.h>
#include <tandem/core/error.h>
#include <tandem/optim/adam.h>
#include <tandem/optim/clip.h>
#include <tandem/optim/sgd.h>

#include "leaves.h"
#include "support/memory.h"
#include "support/message.h"

namespace tandem {
namespace {

using test::memory_of;
using test::message_of;
using test::values;

using Values = std::vector<double>;

// Sizes below and above the 64 floats or 32 doubles of a segment's alignment.
std::vector<Parameter> make_parameters(DType dtype = DType::f64) {
  std::vector<Parameter> made;
  for (const Shape& sizes : {Shape{3, 5}, {5}, {8, 8}, {}, {65}, {1, 1}}) {
    made.emplace_back(values(sizes, -1, 1, 10 + made.size()).to(dtype));
  }
  return made;
}

std::vector<Tensor> handles(const std::vector<Parameter>& parameters) { return {parameters.begin(), parameters.end()}; }

const ParameterStore& store_of(const Tensor& parameter) { return *ParameterStore::find(parameter).store; }

// Computes the gradients of one step for all parameters.
void backward(const std::vector<Tensor>& parameters) {
  Tensor loss = zeros({}, {.dtype = parameters[0].dtype()});
  for (const Tensor& p : parameters) {
    loss = loss + (p * p).sum() + p.sum();
  }
  loss.backward();
}

// The number of nonzero elements in the gaps after the segments.
int dirty_gaps(const ParameterStore& store) {
  int dirty = 0;
  for (const detail::View* flat : {&store.values(), &store.gradients()}) {
    const std::vector<double> all = Tensor(*flat).to_vector<double>();
    for (const auto& segment : store.segments()) {
      for (std::int64_t i = segment.numel; i < segment.padded; ++i) {
        dirty += all[static_cast<std::size_t>(segment.offset + i)] != 0;
      }
    }
  }
  return dirty;
}

TEST(ParameterStore, PacksInReverseOrderOfRegistration) {
  const auto parameters = make_parameters();
  ParameterStore::ensure(handles(parameters));
  const ParameterStore& store = store_of(parameters[0]);
  ASSERT_EQ(store.segments().size(), parameters.size());
  EXPECT_EQ(store.dtype(), DType::f64);
  EXPECT_EQ(store.device(), parameters[0].device());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto place = ParameterStore::find(parameters[i]);
    EXPECT_EQ(place.store.get(), &store);
    EXPECT_EQ(place.segment, parameters.size() - 1 - i);
  }
}

TEST(ParameterStore, SegmentsBeginAtMultiplesOf256Bytes) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const auto parameters = make_parameters(dtype);
    ParameterStore::ensure(handles(parameters));
    const ParameterStore& store = store_of(parameters[0]);
    const auto item = static_cast<std::int64_t>(item_size(dtype));
    std::int64_t end = 0;
    for (std::size_t s = 0; s < store.segments().size(); ++s) {
      const auto& segment = store.segments()[s];
      const Parameter& p = parameters[parameters.size() - 1 - s];
      EXPECT_EQ(segment.offset, end);
      EXPECT_EQ(segment.offset * item % 256, 0);
      EXPECT_EQ(segment.padded * item % 256, 0);
      EXPECT_EQ(segment.numel, p.numel());
      EXPECT_LT(segment.padded - segment.numel, 256 / item);
      EXPECT_EQ(p.raw().data(), static_cast<std::byte*>(store.values().data()) + segment.offset * item);
      end += segment.padded;
    }
    EXPECT_EQ(store.values().numel(), end);
    EXPECT_EQ(store.gradients().numel(), end);
    EXPECT_EQ(dirty_gaps(store), 0);
  }
}

TEST(ParameterStore, KeepsIdentityValuesGradientsAndHooks) {
  auto parameters = make_parameters();
  backward(handles(parameters));
  parameters[2].zero_grad();
  int calls = 0;
  parameters[1].register_post_accumulate_grad_hook([&](const Tensor&) { ++calls; });
  std::vector<Values> before;
  std::vector<Values> gradients;
  std::vector<detail::TensorImpl*> identity;
  for (const Parameter& p : parameters) {
    before.push_back(p.to_vector<double>());
    gradients.push_back(p.grad().defined() ? p.grad().to_vector<double>() : Values{});
    identity.push_back(p.unresolved());
  }
  const Tensor handle = parameters[0];
  ParameterStore::ensure(handles(parameters));
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_EQ(parameters[i].to_vector<double>(), before[i]);
    EXPECT_EQ(parameters[i].grad().defined() ? parameters[i].grad().to_vector<double>() : Values{}, gradients[i]);
    EXPECT_EQ(parameters[i].unresolved(), identity[i]);
    EXPECT_TRUE(parameters[i].requires_grad());
    EXPECT_TRUE(parameters[i].is_contiguous());
  }
  EXPECT_EQ(memory_of(handle), memory_of(parameters[0]));
  backward(handles(parameters));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(parameters[2].grad().to_vector<double>(), (parameters[2].detach() * 2 + 1).to_vector<double>());
}

TEST(ParameterStore, GradientsLiveInItFromThenOn) {
  const auto parameters = make_parameters();
  ParameterStore::ensure(handles(parameters));
  EXPECT_FALSE(parameters[0].grad().defined());
  const ParameterStore& store = store_of(parameters[0]);
  for (int pass = 0; pass < 2; ++pass) {
    backward(handles(parameters));
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const auto& segment = store.segments()[parameters.size() - 1 - i];
      EXPECT_EQ(memory_of(parameters[i].grad()), static_cast<double*>(store.gradients().data()) + segment.offset);
      parameters[i].zero_grad();
    }
  }
  EXPECT_EQ(dirty_gaps(store), 0);
}

TEST(ParameterStore, PackingBetweenForwardAndBackwardIsHarmless) {
  const Tensor x = values({2, 5});
  Parameter w(values({3, 5}));
  const Tensor plain = linear(x, w).sum();
  plain.backward({}, true);
  const Values expected = w.grad().to_vector<double>();
  w.zero_grad();
  ParameterStore::ensure({w});
  plain.backward();
  EXPECT_EQ(w.grad().to_vector<double>(), expected);
}

TEST(ParameterStore, PacksWhatIsNotDense) {
  Parameter w(values({3, 5}).t());
  const Values before = w.to_vector<double>();
  ASSERT_FALSE(w.is_contiguous());
  (w * w).sum().backward();
  const Values gradient = w.grad().to_vector<double>();
  ParameterStore::ensure({w});
  EXPECT_TRUE(w.is_contiguous());
  EXPECT_EQ(w.to_vector<double>(), before);
  EXPECT_EQ(w.grad().to_vector<double>(), gradient);
}

TEST(ParameterStore, EachSegmentHasAVersionOfItsOwn) {
  auto parameters = make_parameters();
  ParameterStore::ensure(handles(parameters));
  const std::uint32_t other = parameters[1].version();
  const std::uint32_t before = parameters[0].version();
  const NoGradGuard no_grad;
  parameters[0].add_(1.0);
  EXPECT_EQ(parameters[0].version(), before + 1);
  EXPECT_EQ(parameters[1].version(), other);
}

TEST(ParameterStore, OneStorePerDTypeAndDevice) {
  Parameter a(values({4}));
  Parameter b(values({4}).to(DType::f32));
  Parameter c(values({4}).to("cpu:1"));
  Parameter d(values({4}));
  ParameterStore::ensure({a, b, c, d});
  EXPECT_EQ(ParameterStore::find(a).store, ParameterStore::find(d).store);
  EXPECT_NE(ParameterStore::find(a).store, ParameterStore::find(b).store);
  EXPECT_NE(ParameterStore::find(a).store, ParameterStore::find(c).store);
  EXPECT_EQ(store_of(b).dtype(), DType::f32);
  EXPECT_EQ(store_of(c).device(), Device("cpu:1"));
}

TEST(ParameterStore, EnsureTakesOnlyWhatIsInNoStore) {
  Parameter a(values({4}));
  Parameter b(values({4}));
  ParameterStore::ensure({a, a});
  EXPECT_EQ(store_of(a).segments().size(), 1u) << "a tied parameter is one";
  const void* where = memory_of(a);
  ParameterStore::ensure({a, b});
  EXPECT_EQ(memory_of(a), where);
  EXPECT_NE(ParameterStore::find(a).store, ParameterStore::find(b).store);
  ParameterStore::ensure({});
}

TEST(ParameterStore, LivesAsLongAsOneOfItsParameters) {
  Parameter last;
  {
    auto parameters = make_parameters();
    ParameterStore::ensure(handles(parameters));
    backward(handles(parameters));
    last = std::move(parameters[1]);
  }
  backward({last});
  EXPECT_EQ(store_of(last).segments().size(), 6u);
}

TEST(ParameterStore, TakesOnlyLeavesThatRequireGradients) {
  EXPECT_EQ(message_of<ConfigError>([] { ParameterStore::ensure({zeros({2})}); }),
            "ParameterStore: a parameter must be a leaf that requires a gradient");
  EXPECT_FALSE(ParameterStore::find(zeros({2})).store);
}

// ---- runs ----

const auto always = [](std::size_t, std::size_t) { return true; };

TEST(GradientRuns, AreTheLongestStretchesWithGradients) {
  const auto parameters = make_parameters();
  ParameterStore::ensure(handles(parameters));
  std::vector<Tensor> sorted = sorted_by_place(handles(parameters));
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    EXPECT_EQ(ParameterStore::find(sorted[i]).segment, i);
  }
  EXPECT_TRUE(gradient_runs(sorted, always).empty());
  backward(sorted);
  auto runs = gradient_runs(sorted, always);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].first, 0u);
  EXPECT_EQ(runs[0].last, sorted.size());
  EXPECT_EQ(runs[0].numel, store_of(sorted[0]).values().numel());
  EXPECT_EQ(runs[0].values, store_of(sorted[0]).values().data());
  EXPECT_EQ(runs[0].gradients, store_of(sorted[0]).gradients().data());

  sorted[2].zero_grad();
  runs = gradient_runs(sorted, always);
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].last, 2u);
  EXPECT_EQ(runs[1].first, 3u);
  EXPECT_EQ(gradient_runs(sorted, [](std::size_t, std::size_t) { return false; }).size(), sorted.size() - 1);
}

TEST(GradientRuns, DoNotCrossStoresDTypesOrLooseParameters) {
  Parameter a(values({32}));
  Parameter b(values({32}));
  Parameter loose(values({32}));
  Parameter small(values({64}).to(DType::f32));
  ParameterStore::ensure({a});
  ParameterStore::ensure({b});
  ParameterStore::ensure({small});
  (a * a).sum().backward();
  (b * b).sum().backward();
  (loose * loose).sum().backward();
  (small * small).sum().backward();
  const auto runs = gradient_runs(sorted_by_place({a, b, loose, small}), always);
  ASSERT_EQ(runs.size(), 4u);
  EXPECT_EQ(runs[2].numel, 32) << "outside a store there is no gap";
}

TEST(GradientRuns, SortedByPlaceKeepsTheOrderInWhichStoresAreMet) {
  Parameter a(values({4}));
  Parameter b(values({4}));
  Parameter c(values({4}));
  Parameter d(values({4}));
  ParameterStore::ensure({a, b});
  ParameterStore::ensure({c, d});
  const std::vector<Tensor> sorted = sorted_by_place({c, a, d, b});
  const std::vector<Tensor> expected{d, c, b, a};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(sorted[i].unresolved(), expected[i].unresolved()) << i;
  }
}

// ---- gaps ----

template <class Optimizer, class Options>
void expect_clean_gaps(const Options& options) {
  const auto parameters = make_parameters(DType::f32);
  Optimizer optimizer(handles(parameters), options);
  for (int step = 0; step < 5; ++step) {
    optimizer.zero_grad();
    backward(handles(parameters));
    optim::clip_grad_norm_(handles(parameters), 0.5);
    optimizer.step();
  }
  EXPECT_EQ(dirty_gaps(store_of(parameters[0])), 0);
}

TEST(ParameterGaps, StayZeroWithEveryOptimizer) {
  expect_clean_gaps<optim::SGD>(optim::SGDOptions{.lr = 0.1});
  expect_clean_gaps<optim::SGD>(optim::SGDOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true});
  expect_clean_gaps<optim::Adam>(optim::AdamOptions{.lr = 0.1, .weight_decay = 0.1});
  expect_clean_gaps<optim::AdamW>(optim::AdamWOptions{.lr = 0.1});
}

// A loss that is not finite must leave nothing in the gaps, where no gradient is ever written again.
TEST(ParameterGaps, StayZeroWhenGradientsAreNotNumbers) {
  const auto parameters = make_parameters(DType::f32);
  optim::SGD sgd(handles(parameters), {.lr = 0.1});
  (parameters[0] * std::nan("")).sum().backward();
  backward(handles(parameters));
  const Tensor norm = optim::clip_grad_norm_(handles(parameters), 1.0);
  EXPECT_TRUE(std::isnan(norm.item()));
  EXPECT_EQ(dirty_gaps(store_of(parameters[0])), 0);
  sgd.zero_grad();
  backward(handles(parameters));
  EXPECT_TRUE(std::isfinite(optim::clip_grad_norm_(handles(parameters), 1.0).item())) << "and the next one is healthy";
}

}  // namespace
}  // namespace tandem
