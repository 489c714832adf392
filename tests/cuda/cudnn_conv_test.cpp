#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <tandem/core/cuda.h>
#include <tandem/core/cuda_stream.h>
#include <tandem/core/error.h>
#include <tandem/kernels/cuda/cudnn/plan_cache.h>
#include <tandem/kernels/cuda/cudnn/try.h>
#include <tandem/kernels/cuda/launch/queue.h>
#include <tandem/kernels/kernel_library.h>
#include <tandem/kernels/matmul_tuning.h>
#include <tandem/tensor/cuda_allocator.h>
#include <tandem/tensor/factories.h>

#include "cuda/both.h"
#include "cuda/conv_cases.h"

#if __has_include("emulated_gpu.h")
#include "emulated_gpu.h"
#endif

namespace tandem::kernels {
namespace {

using test::Both;
using test::conv_shape;
using test::random_values;
using test::Rng;

#define CONV_NEEDS_CUDNN() \
  TANDEM_NEEDS_GPU();      \
  if (!cuda::cudnn_available()) GTEST_SKIP() << "no cuDNN"

// Launches as conv.cu does, and counts who did the work.
struct Counted {
  int by_cudnn = 0;
  int by_us = 0;

  template <class Kernel>
  void operator()(const Kernel& kernel) {
    const bool done = gpu::try_cudnn(Queue(test::gpu()), kernel);
    (done ? by_cudnn : by_us) += 1;
    if (!done) {
      launch(test::gpu(), kernel);
    }
  }
};

class Precision {
 public:
  explicit Precision(const char* precision) { set_float32_matmul_precision(precision); }
  ~Precision() { set_float32_matmul_precision("highest"); }
  Precision(const Precision&) = delete;
  Precision& operator=(const Precision&) = delete;
};

class Forced {
 public:
  explicit Forced(bool deterministic) { test::gpu().deterministic = deterministic; }
  ~Forced() { test::gpu().deterministic = true; }
  Forced(const Forced&) = delete;
  Forced& operator=(const Forced&) = delete;
};

class Tuning {
 public:
  Tuning() { cuda::set_kernel_tuning(true); }
  ~Tuning() { cuda::set_kernel_tuning(false); }
  Tuning(const Tuning&) = delete;
  Tuning& operator=(const Tuning&) = delete;
};

constexpr Accumulate kBoth[] = {Accumulate::no, Accumulate::yes};

TEST(CudnnConv, AgreesWithTheCpu) {
  CONV_NEEDS_CUDNN();
  Counted counted;
  int empty = 0;
  for (const ConvShape& shape : test::awkward_convs()) {
    SCOPED_TRACE(test::describe(shape));
    empty += shape.batch * shape.in_size() * shape.weight_size() == 0 ? 1 : 0;
    for (const Accumulate accumulate : kBoth) {
      test::compare_convs<float>(shape, true, accumulate, counted);
      test::compare_convs<double>(shape, true, accumulate, counted);
    }
  }
  // Empty arrays are ours. An emulated cuDNN has no engine for the gradient of a weight with uneven paddings.
  const int ours = 12 * empty;
  EXPECT_GT(counted.by_cudnn, 200);
  EXPECT_GE(counted.by_us, ours);
  EXPECT_LE(counted.by_us, ours + 12);
}

TEST(CudnnConv, InSixteenBits) {
  CONV_NEEDS_CUDNN();
  Counted counted;
  for (const std::int64_t channels : {8, 5}) {  // an emulated cuDNN has engines for aligned tensors and multiples of 8
    const ConvShape shape = conv_shape({2, 2, channels, channels, {9, 7}, {}, {3, 2}, {2, 1}, {1, 0}, {1, 2}});
    for (const Accumulate accumulate : kBoth) {
      test::compare_convs<Float16>(shape, true, accumulate, counted, 0);
      test::compare_convs<BFloat16>(shape, true, accumulate, counted, 0);
    }
  }
  EXPECT_GE(counted.by_cudnn, 12);
}

TEST(CudnnConv, RunsAreEqualBitByBit) {
  CONV_NEEDS_CUDNN();
  const ConvShape shape = conv_shape({2, 1, 24, 16, {9, 8}, {}, {3, 3}, {1, 1}, {1, 1}, {1, 1}});
  const auto results = [&]<class T>(bool deterministic) {
    const Forced forced(deterministic);
    std::set<std::vector<float>> different;
    for (int run = 0; run < 20; ++run) {
      std::vector<float> all;
      Counted counted;
      test::compare_convs<T>(
          shape, true, Accumulate::no,
          [&](const auto& kernel) {
            counted(kernel);
            using Kernel = std::decay_t<decltype(kernel)>;
            const auto take = [&](const void* result, std::int64_t count) {
              std::vector<T> values(static_cast<std::size_t>(count));
              cuda::require(cudaMemcpyAsync(values.data(), result, values.size() * sizeof(T), cudaMemcpyDeviceToHost,
                                            Queue(test::gpu()).stream()),
                            "cudaMemcpyAsync");
              cuda::synchronize("cuda:0");
              all.insert(all.end(), values.begin(), values.end());
            };
            if constexpr (std::is_same_v<Kernel, Conv>) take(kernel.out, shape.batch * shape.out_size());
            if constexpr (std::is_same_v<Kernel, ConvInGrad>) take(kernel.in_grad, shape.batch * shape.in_size());
            if constexpr (std::is_same_v<Kernel, ConvWeightGrad>) take(kernel.weight_grad, shape.weight_size());
          },
          0);
      EXPECT_EQ(counted.by_cudnn, 3);
      different.insert(all);
    }
    return different.size();
  };
  EXPECT_EQ(results.operator()<float>(true), 1u);
  EXPECT_EQ(results.operator()<Float16>(true), 1u);
#if __has_include("emulated_gpu.h")
  EXPECT_GT(results.operator()<float>(false), 1u);
#endif
}

TEST(CudnnConv, LeavesTheRestToUs) {
  CONV_NEEDS_CUDNN();
  const auto tried = [](const ConvShape& shape) {
    const Conv kernel{DType::f32, Accumulate::no, shape, nullptr, nullptr, nullptr, nullptr};
    return gpu::try_cudnn(Queue(test::gpu()), kernel);
  };
  // 2^31 elements: of the input, of the output, of the weight.
  constexpr std::int64_t kSide = 1 << 15;
  EXPECT_FALSE(tried({2, 1, 1, 1, {kSide, kSide}, {1, 1}, {1, 1}, {kSide, kSide}, {0, 0}, {1, 1}}));
  EXPECT_FALSE(tried({1, 1, 1, 2, {kSide, kSide}, {kSide, kSide}, {1, 1}, {1, 1}, {0, 0}, {1, 1}}));
  EXPECT_FALSE(tried({1, 1, 2, 1, {kSide, kSide}, {1, 1}, {kSide, kSide}, {1, 1}, {0, 0}, {1, 1}}));
  EXPECT_FALSE(
      tried({1, 1, 1, 1, {4, 4}, {2, 2}, {1, 1}, {1, 1}, {0, 0}, {1, 1}}));  // the rest of the image is not read
  EXPECT_FALSE(tried({0, 1, 1, 1, {4, 4}, {4, 4}, {1, 1}, {1, 1}, {0, 0}, {1, 1}}));

  Counted counted;
  cuda::set_convolution_library(cuda::KernelLibrary::own);
  test::compare_convs<float>(conv_shape({1, 1, 2, 3, {5, 5}, {}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}), true, Accumulate::no,
                             counted);
  cuda::set_convolution_library(cuda::KernelLibrary::cudnn);
  EXPECT_EQ(counted.by_us, 3);
}

TEST(CudnnConv, CapturesMakeNoPlans) {
  CONV_NEEDS_CUDNN();
  Rng rng(11);
  const ConvShape known = conv_shape({2, 1, 3, 5, {7, 6}, {}, {3, 3}, {1, 1}, {1, 1}, {1, 1}});
  ConvShape unknown = known;
  unknown.batch = 1;
  Both<float> in(random_values<float>(rng, known.batch * known.in_size()));
  Both<float> weight(random_values<float>(rng, known.weight_size()));
  Both<float> first(std::vector<float>(static_cast<std::size_t>(known.batch * known.out_size()), 7.0F));
  Both<float> second(std::vector<float>(static_cast<std::size_t>(unknown.out_size()), 7.0F));
  const auto conv = [](const ConvShape& shape, const void* x, const void* w, void* y) {
    return Conv{DType::f32, Accumulate::no, shape, x, w, nullptr, y};
  };
  const cuda::Stream stream(Device("cuda:0"));
  const cuda::StreamScope scope(stream);
  const auto tried = [](const Conv& kernel) { return gpu::try_cudnn(Queue(test::gpu()), kernel); };
  ASSERT_TRUE(tried(conv(known, in.device(), weight.device(), first.device())));
  stream.synchronize();
  cudaGraph_t graph = nullptr;
  cuda::require(cudaStreamBeginCapture(stream.handle(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  EXPECT_TRUE(tried(conv(known, in.device(), weight.device(), first.device())));
  EXPECT_FALSE(tried(conv(unknown, in.device(), weight.device(), second.device())));
  launch(test::gpu(), conv(unknown, in.device(), weight.device(), second.device()));
  cuda::require(cudaStreamEndCapture(stream.handle(), &graph), "cudaStreamEndCapture");
  cudaGraphExec_t replay = nullptr;
  cuda::require(cudaGraphInstantiate(&replay, graph, 0), "cudaGraphInstantiate");
  cuda::require(cudaGraphLaunch(replay, stream.handle()), "cudaGraphLaunch");
  stream.synchronize();
  cuda::require(cudaGraphExecDestroy(replay), "cudaGraphExecDestroy");
  cuda::require(cudaGraphDestroy(graph), "cudaGraphDestroy");
  launch(test::cpu(), conv(known, in.host(), weight.host(), first.host()));
  launch(test::cpu(), conv(unknown, in.host(), weight.host(), second.host()));
  EXPECT_LE(first.distance(), 1e-6);
  EXPECT_LE(second.distance(), 1e-6);
  EXPECT_TRUE(tried(conv(unknown, in.device(), weight.device(), second.device())));  // the capture is over
}

TEST(CudnnConv, WithAReluAgreesWithTheCpu) {
  CONV_NEEDS_CUDNN();
  Counted counted;
  const ConvShape shape = conv_shape({2, 2, 8, 8, {9, 11}, {}, {3, 2}, {2, 1}, {1, 0}, {1, 2}});
  for (const bool biased : {false, true}) {
    for (const Accumulate accumulate : kBoth) {
      test::compare_conv_relu<float>(shape, biased, accumulate, counted);
      test::compare_conv_relu<double>(shape, biased, accumulate, counted);
      test::compare_conv_relu<Float16>(shape, biased, accumulate, counted, 0);
      test::compare_conv_relu<BFloat16>(shape, biased, accumulate, counted, 0);
    }
  }
  EXPECT_EQ(counted.by_us, 0);
}

TEST(CudnnConv, MeasuredChoicesAgreeWithTheCpu) {
  CONV_NEEDS_CUDNN();
  const Tuning tuning;
  Counted counted;
  const ConvShape shape = conv_shape({2, 2, 8, 8, {9, 11}, {}, {3, 2}, {2, 1}, {1, 0}, {1, 2}});
  for (int time = 0; time < 2; ++time) {
    for (const Accumulate accumulate : kBoth) {
      test::compare_convs<float>(shape, true, accumulate, counted);
      test::compare_convs<Float16>(shape, true, accumulate, counted, 0);
      test::compare_convs<double>(shape, true, accumulate, counted);
      test::compare_conv_relu<BFloat16>(shape, true, accumulate, counted, 0);
    }
  }
  EXPECT_EQ(counted.by_us, 0);
}

using Cache = gpu::cudnn::PlanCache<int, int>;

// Finds the plan of a key, which is the key itself. Returns whether it was made now.
bool made(Cache& cache, int key, bool is_capturing = false) {
  bool made = false;
  const int* const found = cache.find(key, is_capturing, [&] {
    made = true;
    return key < 0 ? std::nullopt : std::optional<int>(key);
  });
  EXPECT_TRUE(found == nullptr || *found == key);
  return made;
}

TEST(CudnnPlanCache, DropsThePlanThatWasNotUsedForLongest) {
  Cache cache;
  constexpr int kMost = static_cast<int>(Cache::kMost);
  for (int key = 0; key < kMost; ++key) {
    EXPECT_TRUE(made(cache, key));
  }
  EXPECT_FALSE(made(cache, 0));
  EXPECT_TRUE(made(cache, kMost));
  EXPECT_EQ(cache.size(), Cache::kMost);
  EXPECT_FALSE(made(cache, 0));
  EXPECT_TRUE(made(cache, 1));
}

TEST(CudnnPlanCache, KeepsWhatACaptureHasFound) {
  Cache cache;
  EXPECT_FALSE(made(cache, 0, true));
  EXPECT_EQ(cache.size(), 0u);
  EXPECT_TRUE(made(cache, 0));
  EXPECT_FALSE(made(cache, 0, true));
  constexpr int kMost = static_cast<int>(Cache::kMost);
  for (int key = 1; key <= 2 * kMost; ++key) {
    EXPECT_TRUE(made(cache, key));
  }
  EXPECT_FALSE(made(cache, 0));
  EXPECT_EQ(cache.size(), Cache::kMost + 1);
}

TEST(CudnnPlanCache, RemembersRefusals) {
  Cache cache;
  EXPECT_TRUE(made(cache, -1));
  EXPECT_FALSE(made(cache, -1));
}

TEST(CudnnPlanCache, SettledAnswersStay) {
  Cache cache;
  EXPECT_TRUE(made(cache, 3));
  EXPECT_FALSE(cache.is_settled(3));
  cache.settle(3, std::nullopt);
  EXPECT_TRUE(cache.is_settled(3));
  cache.settle(3, 3);
  EXPECT_EQ(cache.find(3, false, [] { return std::optional<int>(); }), nullptr);
  EXPECT_TRUE(made(cache, 4));
  EXPECT_FALSE(made(cache, 4, true));
  EXPECT_TRUE(cache.is_settled(4));  // a captured graph has it
  cache.settle(4, std::nullopt);
  EXPECT_FALSE(made(cache, 4));
  cache.settle(5, 5);
  EXPECT_FALSE(made(cache, 5));
  EXPECT_EQ(cache.size(), 3u);
}

#if __has_include("emulated_gpu.h")

// The kernels that run for one convolution or gradient.
template <class T>
std::vector<std::string> engines(const ConvShape& shape, bool biased, Accumulate accumulate) {
  cuda::synchronize("cuda:0");
  std::vector<std::string> names;
  test::compare_convs<T>(shape, biased, accumulate, [&](const auto& kernel) {
    const emulated_gpu::KernelLog log;
    launch(test::gpu(), kernel);
    cuda::synchronize("cuda:0");
    for (const std::string& name : log.names()) {
      const bool ours = name.find("multiply") != std::string::npos;
      names.push_back(name.starts_with("cudnn") ? name : ours ? "own" : "sum");
    }
  });
  return names;
}

using Kernels = std::vector<std::string>;

TEST(CudnnConv, TakesTheFirstEngineThatIsExactAndFits) {
  CONV_NEEDS_CUDNN();
  const ConvShape shape = conv_shape({2, 1, 8, 8, {6, 5}, {}, {3, 3}, {1, 1}, {1, 1}, {1, 1}});
  const std::string blocked = "cudnn_conv_blocked";
  const std::string direct = "cudnn_conv_direct";
  EXPECT_EQ(engines<float>(shape, false, Accumulate::no), (Kernels{blocked, blocked, blocked}));
  EXPECT_EQ(engines<float>(shape, true, Accumulate::no), (Kernels{blocked, blocked, "sum", blocked}));
  EXPECT_EQ(engines<float>(shape, false, Accumulate::yes), (Kernels{direct, direct, direct}));
  EXPECT_EQ(engines<float>(shape, true, Accumulate::yes), (Kernels{direct, "sum", direct, "sum", direct}));
  EXPECT_EQ(engines<double>(shape, true, Accumulate::no), (Kernels{direct, "sum", direct, "sum", direct}));
  ConvShape odd = shape;
  odd.in_channels = 7;
  EXPECT_EQ(engines<Float16>(odd, true, Accumulate::yes), (Kernels{"own", "own", "own"}));
}

// The kernels that run for a convolution with a ReLU.
template <class T>
Kernels engines_with_relu(const ConvShape& shape, bool biased, std::size_t offset) {
  cuda::synchronize("cuda:0");
  Kernels names;
  test::compare_conv_relu<T>(
      shape, biased, Accumulate::no,
      [&](const Conv& kernel) {
        const emulated_gpu::KernelLog log;
        launch(test::gpu(), kernel);
        cuda::synchronize("cuda:0");
        for (const std::string& name : log.names()) {
          names.push_back(name.starts_with("cudnn") ? name : "ours");
        }
      },
      offset);
  return names;
}

// In 16 bits and TF32; elsewhere a NaN must stay, of which cuDNN's documentation says nothing.
TEST(CudnnConv, ItsEnginesDoTheReluToo) {
  CONV_NEEDS_CUDNN();
  const ConvShape shape = conv_shape({2, 1, 8, 8, {6, 5}, {}, {3, 3}, {1, 1}, {1, 1}, {1, 1}});
  const std::string tensor_cores = "cudnn_conv_tensor_cores";
  for (const bool biased : {false, true}) {
    EXPECT_EQ(engines_with_relu<BFloat16>(shape, biased, 0), (Kernels{tensor_cores}));
    EXPECT_EQ(engines_with_relu<float>(shape, biased, 0), (Kernels{"cudnn_conv_blocked", "ours"}));
  }
  EXPECT_EQ(engines_with_relu<double>(shape, true, 0), (Kernels{"cudnn_conv_direct", "ours", "ours"}));
}

TEST(CudnnConv, EachShapeIsMeasuredOnce) {
  CONV_NEEDS_CUDNN();
  const ConvShape shape = conv_shape({1, 1, 8, 8, {6, 23}, {}, {1, 1}, {1, 1}, {0, 0}, {1, 1}});
  const std::string direct = "cudnn_conv_direct";
  EXPECT_EQ(engines<float>(shape, false, Accumulate::yes), (Kernels{direct, direct, direct}));
  const Tuning tuning;
  const Kernels first = engines<float>(shape, false, Accumulate::yes);
  const auto count = [&](const char* name) { return std::count(first.begin(), first.end(), name); };
  EXPECT_GE(count("cudnn_conv_direct"), 3 * 6);  // adds to the result itself
  EXPECT_GE(count("cudnn_conv_blocked"), 3 * 6);
  EXPECT_EQ(count("cudnn_conv_unwanted"), 0);
  EXPECT_EQ(count("cudnn_conv_varying"), 0);
  EXPECT_EQ(count("own"), 0);
  const Kernels second = engines<float>(shape, false, Accumulate::yes);
  EXPECT_LE(second.size(), 6u);
  EXPECT_EQ(engines<float>(shape, false, Accumulate::yes), second);
}

// A Conv of eight channels whose arrays are aligned.
template <class T>
struct Aligned {
  ConvShape shape = conv_shape({1, 1, 8, 8, {6, 5}, {}, {3, 3}, {1, 1}, {1, 1}, {1, 1}});
  Rng rng{3};
  Both<T> in{random_values<T>(rng, shape.in_size())};
  Both<T> weight{random_values<T>(rng, shape.weight_size())};
  Both<T> out{random_values<T>(rng, shape.out_size())};

  Kernels run(Accumulate accumulate) {
    const Conv conv{dtype_of<T>, accumulate, shape, in.host(), weight.host(), nullptr, out.host()};
    launch(test::cpu(), conv);
    cuda::synchronize("cuda:0");
    const emulated_gpu::KernelLog log;
    launch(test::gpu(), Conv{dtype_of<T>, accumulate, shape, in.device(), weight.device(), nullptr, out.device()});
    cuda::synchronize("cuda:0");
    Kernels names = log.names();
    std::erase_if(names, [](const std::string& name) { return !name.starts_with("cudnn"); });
    return names;
  }
};

TEST(CudnnConv, Tf32IsAllowedByThePrecisionOfProducts) {
  CONV_NEEDS_CUDNN();
  Aligned<float> exact;
  EXPECT_EQ(exact.run(Accumulate::no), (Kernels{"cudnn_conv_blocked"}));
  EXPECT_LE(exact.out.distance(), 1e-6);
  {
    const Precision precision("high");
    EXPECT_EQ(exact.run(Accumulate::no), (Kernels{"cudnn_conv_tensor_cores"}));
    EXPECT_GT(exact.out.distance(), 1e-5);
    EXPECT_LE(exact.out.distance(), 2e-3);
  }
  EXPECT_EQ(exact.run(Accumulate::no), (Kernels{"cudnn_conv_blocked"}));
  Aligned<BFloat16> narrow;
  EXPECT_EQ(narrow.run(Accumulate::no), (Kernels{"cudnn_conv_tensor_cores"}));
  EXPECT_EQ(narrow.run(Accumulate::yes), (Kernels{"cudnn_conv_tensor_cores"}));
  EXPECT_LE(narrow.out.distance(), test::rounding<BFloat16>());
}

TEST(CudnnConv, WhatACaptureHasFoundIsNotMeasured) {
  CONV_NEEDS_CUDNN();
  Aligned<float> one;
  one.shape = conv_shape({1, 1, 8, 8, {5, 6}, {}, {3, 3}, {1, 1}, {1, 1}, {1, 1}});
  const auto start = [&] {
    launch(test::gpu(), Conv{DType::f32, Accumulate::no, one.shape, one.in.device(), one.weight.device(), nullptr,
                             one.out.device()});
  };
  const cuda::Stream stream(Device("cuda:0"));
  {
    const cuda::StreamScope scope(stream);
    start();  // makes the plan, and the stream's workspace
    stream.synchronize();
    cuda::require(cudaStreamBeginCapture(stream.handle(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    start();
    cudaGraph_t graph = nullptr;
    cuda::require(cudaStreamEndCapture(stream.handle(), &graph), "cudaStreamEndCapture");
    cuda::require(cudaGraphDestroy(graph), "cudaGraphDestroy");
  }
  const Tuning tuning;
  EXPECT_EQ(one.run(Accumulate::no), (Kernels{"cudnn_conv_blocked"}));
}

TEST(CudnnConv, WithoutMemoryItsFirstChoiceStays) {
  CONV_NEEDS_CUDNN();
  const ConvShape shape = conv_shape({1, 1, 8, 64, {128, 256}, {}, {1, 1}, {1, 1}, {0, 0}, {1, 1}});  // 8 MiB
  const test::DeviceArray<float> in(std::vector<float>(static_cast<std::size_t>(shape.in_size()), 1.0F));
  const test::DeviceArray<float> weight(std::vector<float>(static_cast<std::size_t>(shape.weight_size()), 1.0F));
  const test::DeviceArray<float> out(std::vector<float>(static_cast<std::size_t>(shape.out_size()), 1.0F));
  std::vector<Tensor> held;  // all but less than 4 MiB
  for (auto piece = static_cast<std::int64_t>(cuda::memory_stats().free); piece >= 1 << 21; piece /= 2) {
    try {
      held.push_back(empty({piece}, {.dtype = DType::u8, .device = "cuda:0"}));
    } catch (const OutOfMemory&) {
    }
  }
  ASSERT_LT(cuda::memory_stats().free, std::size_t{8} << 20);
  const Tuning tuning;
  const Conv conv{DType::f32, Accumulate::yes, shape, in.data(), weight.data(), nullptr, out.data()};
  for (int time = 0; time < 2; ++time) {  // the second one does not try again
    const emulated_gpu::KernelLog log;
    EXPECT_TRUE(gpu::try_cudnn(Queue(test::gpu()), conv));
    cuda::synchronize("cuda:0");
    EXPECT_EQ(log.names(), (Kernels{"cudnn_conv_direct"}));
  }
  EXPECT_EQ(out.download()[0], 17.0F);
  held.clear();
  cuda::empty_cache();
}

// It drops and reorders engines, refuses plans, wants more workspace, and leaves garbage wherever it may.
TEST(CudnnConv, AHostileLibraryDoesNotChangeResults) {
  CONV_NEEDS_CUDNN();
  Counted counted;
  for (std::int64_t seed = 1; seed <= 12; ++seed) {
    emulated_gpu::be_hostile(static_cast<std::uint64_t>(seed));
    SCOPED_TRACE(fmt::format("seed {}", seed));
    // A shape for which there is no plan yet.
    const ConvShape shape = conv_shape({1, 2, 4, 8, {5, 10 + seed}, {}, {3, 2}, {2, 1}, {1, 1}, {1, 1}});
    for (const Accumulate accumulate : kBoth) {
      test::compare_convs<float>(shape, true, accumulate, counted);
      test::compare_convs<Float16>(shape, false, accumulate, counted, 0);
    }
  }
  emulated_gpu::be_hostile(0);
  EXPECT_GT(counted.by_cudnn, 30);
  EXPECT_GT(counted.by_us, 30);
}

TEST(CudnnConv, MorePlansThanTheCacheKeeps) {
  CONV_NEEDS_CUDNN();
  Counted counted;
  Both<float> values(std::vector<float>(4096, 0.5F));
  Both<float> out(std::vector<float>(4096, 0.0F));
  constexpr std::int64_t kShapes = 600;
  for (std::int64_t width = 1; width <= kShapes; ++width) {
    const ConvShape shape = conv_shape({1, 1, 1, 1, {1, width}, {}, {1, 1}, {1, 1}, {0, 0}, {1, 1}});
    counted(Conv{DType::f32, Accumulate::no, shape, values.device(), values.device(), nullptr, out.device()});
  }
  EXPECT_EQ(counted.by_cudnn, kShapes);
  std::vector<float> expected(4096, 0.0F);
  std::fill_n(expected.begin(), kShapes, 0.25F);
  EXPECT_EQ(out.download(), expected);
}

#endif

}  // namespace
}  // namespace tandem::kernels
