#include <gtest/gtest.h>

#include <tandem/kernels/kernel_library.h>

#include "cuda/conv_cases.h"

namespace tandem::kernels {
namespace {

// Launches our own kernel. cudnn_conv_test.cpp tests those of cuDNN.
const auto kLaunch = [](const auto& kernel) {
  const cuda::KernelLibrary before = cuda::convolution_library();
  cuda::set_convolution_library(cuda::KernelLibrary::own);
  launch(test::gpu(), kernel);
  cuda::set_convolution_library(before);
};

TEST(CudaConv, AgreesWithTheCpu) {
  TANDEM_NEEDS_GPU();
  for (const ConvShape& shape : test::awkward_convs()) {
    SCOPED_TRACE(test::describe(shape));
    if (shape.in_size() * shape.batch > 30'000) {
      continue;  // minutes on an emulated GPU
    }
    test::compare_convs<float>(shape, true, Accumulate::no, kLaunch);
    test::compare_convs<double>(shape, false, Accumulate::yes, kLaunch);
    test::compare_conv_relu<float>(shape, shape.groups > 1, shape.batch > 1 ? Accumulate::yes : Accumulate::no,
                                   kLaunch);
  }
}

TEST(CudaConv, InSixteenBits) {
  TANDEM_NEEDS_GPU();
  const ConvShape shape = test::conv_shape({2, 2, 3, 5, {9, 11}, {}, {3, 2}, {2, 1}, {1, 0}, {1, 2}});
  test::compare_convs<Float16>(shape, true, Accumulate::yes, kLaunch);
  test::compare_convs<BFloat16>(shape, true, Accumulate::no, kLaunch);
}

}  // namespace
}  // namespace tandem::kernels
