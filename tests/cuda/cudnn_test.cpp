#include <cmath>
#include <limits>
#include <string>

#include <fmt/format.h>

#include <tandem/core/check.h>
#include <tandem/core/cuda_stream.h>
#include <tandem/core/error.h>
#include <tandem/kernels/cuda/cudnn/library.h>
#include <tandem/kernels/cuda/cudnn/try.h>
#include <tandem/kernels/cuda/launch/queue.h>
#include <tandem/kernels/kernel_library.h>
#include <tandem/kernels/pointwise_formulas.h>

#include "cuda/both.h"
#include "cuda/near.h"

#if __has_include("emulated_gpu.h")
#include "emulated_gpu.h"
#endif

namespace tandem::kernels {
namespace {

using cuda::KernelLibrary;
using test::Both;
using test::Rng;
using test::values_between;

#define NEEDS_CUDNN() \
  TANDEM_NEEDS_GPU(); \
  if (!cuda::cudnn_available()) GTEST_SKIP() << "no cuDNN"

class Chosen {
 public:
  explicit Chosen(KernelLibrary library) {
    cuda::set_softmax_library(library);
    cuda::set_activation_library(library);
  }
  ~Chosen() {
    cuda::set_softmax_library(KernelLibrary::own);
    cuda::set_activation_library(KernelLibrary::own);
  }
  Chosen(const Chosen&) = delete;
  Chosen& operator=(const Chosen&) = delete;
};

template <class Kernel>
bool tried(const Kernel& kernel) {
  return gpu::try_cudnn(Queue(test::gpu()), kernel);
}

struct Sizes {
  std::int64_t outer, size, inner;
};
constexpr Sizes kSizes[] = {{1, 1, 1}, {37, 10, 1}, {9, 33, 1}, {2, 8195, 1}, {2, 3, 2}, {3, 10, 5}, {2, 5, 1000}};

template <class T>
Softmax softmax(const Sizes& s, bool log, const T* in, T* out) {
  return {.dtype = dtype_of<T>, .log = log, .outer = s.outer, .size = s.size, .inner = s.inner, .in = in, .out = out};
}

TEST(Cudnn, SoftmaxAgreesWithTheCpu) {
  NEEDS_CUDNN();
  const Chosen chosen(KernelLibrary::cudnn);
  Rng rng(3);
  test::for_floating_types([&]<class T>() {
    for (const Sizes& s : kSizes) {
      for (const bool log : {false, true}) {
        SCOPED_TRACE(fmt::format("{}, {} x {} x {}, log {}", dtype_of<T>, s.outer, s.size, s.inner, log));
        auto values = values_between<T>(rng, s.outer * s.size * s.inner, -8, 8);
        values[0] = T(-std::numeric_limits<ComputeType<T>>::infinity());
        if (s.size == 1) values[0] = T(ComputeType<T>(4));
        Both<T> in(values);
        Both<T> out(std::vector<T>(values.size(), T(7)), rng() % 2);
        launch(test::cpu(), softmax(s, log, in.host(), out.host()));
        ASSERT_TRUE(tried(softmax(s, log, in.device(), out.device())));
        ASSERT_LE(out.distance(), test::rounding<T>());
        launch(test::gpu(), softmax(s, log, in.device(), in.device()));  // in place
        launch(test::cpu(), softmax(s, log, in.host(), in.host()));
        ASSERT_LE(in.distance(), test::rounding<T>());
      }
    }
  });
}

TEST(Cudnn, SoftmaxGradientsAgreeWithTheCpu) {
  NEEDS_CUDNN();
  const Chosen chosen(KernelLibrary::cudnn);
  Rng rng(4);
  test::for_floating_types([&]<class T>() {
    for (const Sizes& s : kSizes) {
      for (const int flags : {0, 1, 2, 3}) {
        const bool log = flags % 2 != 0;
        SCOPED_TRACE(fmt::format("{}, {} x {} x {}, flags {}", dtype_of<T>, s.outer, s.size, s.inner, flags));
        const std::int64_t count = s.outer * s.size * s.inner;
        Both<T> grad(values_between<T>(rng, count));
        Both<T> out(values_between<T>(rng, count, log ? -9 : 0, log ? 0 : 0.2));
        Both<T> in_grad(values_between<T>(rng, count));
        SoftmaxGrad kernel{.dtype = dtype_of<T>,
                           .log = log,
                           .accumulate = flags > 1 ? Accumulate::yes : Accumulate::no,
                           .outer = s.outer,
                           .size = s.size,
                           .inner = s.inner,
                           .grad = grad.host(),
                           .out = out.host(),
                           .in_grad = in_grad.host()};
        launch(test::cpu(), kernel);
        kernel.grad = grad.device();
        kernel.out = out.device();
        kernel.in_grad = in_grad.device();
        ASSERT_TRUE(tried(kernel));
        ASSERT_LE(in_grad.distance(), 2 * test::rounding<T>());
        kernel.in_grad = out.device();
        ASSERT_FALSE(tried(kernel));
      }
    }
  });
}

struct Activation {
  PointwiseOp op;
  double s = 0;
  double t = 0;
};
const Activation kActivations[] = {{PointwiseOp::relu},           {PointwiseOp::sigmoid},
                                   {PointwiseOp::tanh},           {PointwiseOp::gelu},
                                   {PointwiseOp::gelu_tanh},      {PointwiseOp::silu},
                                   {PointwiseOp::elu, 1.5},       {PointwiseOp::softplus, 2, 20},
                                   {PointwiseOp::relu_grad},      {PointwiseOp::sigmoid_grad},
                                   {PointwiseOp::tanh_grad},      {PointwiseOp::gelu_grad},
                                   {PointwiseOp::gelu_tanh_grad}, {PointwiseOp::silu_grad},
                                   {PointwiseOp::elu_grad, 0.5},  {PointwiseOp::softplus_grad, 1, 20}};

template <class T>
Pointwise pointwise_of(const Activation& activation, std::int64_t numel, T* out, T* first, T* second) {
  Pointwise kernel{
      .op = activation.op, .dtype = dtype_of<T>, .loop = {}, .out = {}, .in = {}, .s = activation.s, .t = activation.t};
  kernel.loop.ndim = 1;
  kernel.loop.sizes[0] = numel;
  kernel.out = {out, {1}};
  kernel.in[0] = kernel.in[2] = {first, {1}};
  kernel.in[1] = arity(activation.op) == 2 ? Operand{second, {1}} : kernel.in[0];
  return kernel;
}

template <class Body>
void for_types_of_activations(Body&& body) {
  body.template operator()<float>();
  body.template operator()<BFloat16>();
  body.template operator()<Float16>();
}

TEST(Cudnn, ActivationsAgreeWithTheCpu) {
  NEEDS_CUDNN();
  const Chosen chosen(KernelLibrary::cudnn);
  Rng rng(5);
  for_types_of_activations([&]<class T>() {
    for (const Activation& activation : kActivations) {
      for (const std::int64_t numel : {1, 6, 1001, 4096}) {
        for (const std::size_t offset : {0, 1}) {
          SCOPED_TRACE(fmt::format("{}, op {}, {} elements, offset {}", dtype_of<T>, static_cast<int>(activation.op),
                                   numel, offset));
          auto values = values_between<T>(rng, numel, -6, 6);
          values[0] = T(ComputeType<T>(0));
          if (numel > 4) values[3] = T(std::numeric_limits<ComputeType<T>>::quiet_NaN());
          Both<T> first(values_between<T>(rng, numel, -6, 6), offset);
          Both<T> second(values);
          Both<T> out(std::vector<T>(static_cast<std::size_t>(numel), T(7)), offset);
          launch(test::cpu(), pointwise_of(activation, numel, out.host(), first.host(), second.host()));
          const Pointwise kernel = pointwise_of(activation, numel, out.device(), first.device(), second.device());
          ASSERT_TRUE(tried(kernel));
          // The hardware's tanh, in f32, has 11 bits.
          const bool coarse = activation.op == PointwiseOp::tanh || activation.op == PointwiseOp::gelu_tanh ||
                              activation.op == PointwiseOp::gelu_tanh_grad;
          test::expect_near(out.download(), out.values(), "out", coarse && sizeof(T) == 4 ? 1000 : 2);
          ASSERT_TRUE(tried(kernel));  // by the plan made before
        }
      }
    }
  });
}

#if __has_include("emulated_gpu.h")
// It refuses searches, plans and functions, and leaves garbage in the workspace, which holds intermediate results.
TEST(Cudnn, AHostileLibraryDoesNotChangeResults) {
  NEEDS_CUDNN();
  const Chosen chosen(KernelLibrary::cudnn);
  Rng rng(6);
  int done = 0;
  int refused = 0;
  const auto count = [&](bool by_library) { (by_library ? done : refused) += 1; };
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    emulated_gpu::be_hostile(seed);
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const auto numel = static_cast<std::int64_t>(1200 + seed);  // a size for which there is no plan yet
    Both<float> first(values_between<float>(rng, numel, -6, 6));
    Both<float> second(values_between<float>(rng, numel, -6, 6));
    Both<float> out(std::vector<float>(static_cast<std::size_t>(numel), 7.0F));
    for (const Activation& activation : kActivations) {
      launch(test::cpu(), pointwise_of(activation, numel, out.host(), first.host(), second.host()));
      const Pointwise kernel = pointwise_of(activation, numel, out.device(), first.device(), second.device());
      launch(test::gpu(), kernel);
      test::expect_near(out.download(), out.values(), "out", 1000);
      count(tried(kernel));
    }
    const Sizes sizes{numel / 10, 10, 1};
    for (const bool log : {false, true}) {
      launch(test::cpu(), softmax(sizes, log, first.host(), out.host()));
      launch(test::gpu(), softmax(sizes, log, first.device(), out.device()));
      EXPECT_LE(out.distance(), test::rounding<float>());
      count(tried(softmax(sizes, log, first.device(), out.device())));
    }
  }
  emulated_gpu::be_hostile(0);
  EXPECT_GT(done, 40);
  EXPECT_GT(refused, 20);
}
#endif

TEST(Cudnn, LeavesTheRestToUs) {
  NEEDS_CUDNN();
  const Chosen chosen(KernelLibrary::cudnn);
  const std::vector<double> values(64, 0.5);
  Both<double> a(values), b(values);
  ASSERT_FALSE(tried(pointwise_of({PointwiseOp::relu}, 8, a.device(), b.device(), b.device())));  // f64
  const std::vector<float> narrow(64, 0.5F);
  Both<float> x(narrow), y(narrow);
  const auto kernel = [&](const Activation& activation) {
    return pointwise_of(activation, 8, y.device(), x.device(), x.device());
  };
  ASSERT_TRUE(tried(kernel({PointwiseOp::relu})));
  ASSERT_FALSE(tried(kernel({PointwiseOp::exp})));
  ASSERT_FALSE(tried(kernel({PointwiseOp::softplus, 1, 5})));
  ASSERT_FALSE(tried(kernel({PointwiseOp::softplus, -1, 20})));
  ASSERT_FALSE(tried(kernel({PointwiseOp::elu, std::numeric_limits<double>::infinity()})));
  Pointwise changed = kernel({PointwiseOp::relu});
  changed.accumulate = Accumulate::yes;
  ASSERT_FALSE(tried(changed));
  changed = kernel({PointwiseOp::relu});
  changed.in[0].strides[0] = 2;
  ASSERT_FALSE(tried(changed));
  changed = kernel({PointwiseOp::relu});
  changed.out.data = changed.in[0].data;
  ASSERT_FALSE(tried(changed));
  changed.loop.sizes[0] = 0;
  ASSERT_FALSE(tried(changed));
  ASSERT_FALSE(tried(softmax({0, 3, 1}, false, x.device(), y.device())));
}

TEST(Cudnn, OwnKernelsRunUnlessItIsChosen) {
  NEEDS_CUDNN();
  ASSERT_EQ(cuda::softmax_library(), KernelLibrary::own);
  ASSERT_EQ(cuda::activation_library(), KernelLibrary::own);
  const std::vector<float> values(64, 0.5F);
  Both<float> x(values), y(values);
  ASSERT_FALSE(tried(softmax({8, 8, 1}, false, x.device(), y.device())));
  ASSERT_FALSE(tried(pointwise_of({PointwiseOp::relu}, 8, y.device(), x.device(), x.device())));
}

TEST(Cudnn, CapturedStepsMakeNoPlans) {
  NEEDS_CUDNN();
  Rng rng(7);
  Both<float> in(values_between<float>(rng, 770));
  Both<float> out(std::vector<float>(770, 7.0F));
  const Pointwise known = pointwise_of({PointwiseOp::silu}, 770, out.device(), in.device(), in.device());
  const cuda::Stream stream(Device("cuda:0"));
  const cuda::StreamScope scope(stream);
  {
    const Chosen chosen(KernelLibrary::cudnn);
    ASSERT_TRUE(tried(known));  // makes its plan, and the stream's scratch memory
  }
  stream.synchronize();
  cudaGraph_t graph = nullptr;
  cuda::require(cudaStreamBeginCapture(stream.handle(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  {
    const Chosen chosen(KernelLibrary::cudnn);
    EXPECT_FALSE(tried(pointwise_of({PointwiseOp::silu}, 769, out.device(), in.device(), in.device())));
    EXPECT_TRUE(tried(known));
    EXPECT_TRUE(tried(softmax({77, 10, 1}, false, out.device(), out.device())));
  }
  cuda::require(cudaStreamEndCapture(stream.handle(), &graph), "cudaStreamEndCapture");
  cudaGraphExec_t replay = nullptr;
  cuda::require(cudaGraphInstantiate(&replay, graph, 0), "cudaGraphInstantiate");
  cuda::require(cudaGraphLaunch(replay, stream.handle()), "cudaGraphLaunch");
  stream.synchronize();
  cuda::require(cudaGraphExecDestroy(replay), "cudaGraphExecDestroy");
  cuda::require(cudaGraphDestroy(graph), "cudaGraphDestroy");
  launch(test::cpu(), pointwise_of({PointwiseOp::silu}, 770, out.host(), in.host(), in.host()));
  launch(test::cpu(), softmax({77, 10, 1}, false, out.host(), out.host()));
  ASSERT_LE(out.distance(), test::rounding<float>());
}

TEST(Cudnn, TheLoaderSaysWhatIsWrong) {
  EXPECT_NE(gpu::cudnn::load("libtandem_is_not_cudnn.so").problem.find("libtandem_is_not_cudnn.so"), std::string::npos);
  EXPECT_NE(gpu::cudnn::load("libc.so.6").problem.find("has no function cudnnGetVersion"), std::string::npos);
  if (!cuda::cudnn_available()) {
    EXPECT_THROW(cuda::set_softmax_library(KernelLibrary::cudnn), ConfigError);
    EXPECT_THROW(cuda::set_activation_library(KernelLibrary::cudnn), ConfigError);
  }
  EXPECT_NO_THROW(cuda::set_softmax_library(KernelLibrary::own));
}

}  // namespace
}  // namespace tandem::kernels
