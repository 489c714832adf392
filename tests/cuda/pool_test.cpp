#include <tandem/kernels/pool.h>

#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "cuda/device_array.h"
#include "cuda/near.h"
#include "kernels/arrays.h"
#include "kernels/pool_shapes.h"

namespace tandem::kernels {
namespace {

using test::DeviceArray;

template <class T>
void compare_largest(const PoolShape& shape, Accumulate accumulate) {
  test::Rng rng(6);
  auto in = test::random_values<T>(rng, shape.planes * shape.in_plane());
  if (in.size() > 5) {
    in[1] = T(std::numeric_limits<float>::quiet_NaN());
    in[4] = in[5];
  }
  const auto grad = test::random_values<T>(rng, shape.planes * shape.out_plane());
  auto out = grad;
  std::vector<std::int32_t> places(grad.size());
  auto in_grad = test::random_values<T>(rng, shape.planes * shape.in_plane());
  const DeviceArray<T> gpu_in(in), gpu_grad(grad), gpu_out(out), gpu_in_grad(in_grad);
  const DeviceArray<std::int32_t> gpu_places(places);
  launch(test::cpu(), MaxPool{dtype_of<T>, shape, in.data(), out.data(), places.data()});
  launch(test::gpu(), MaxPool{dtype_of<T>, shape, gpu_in.data(), gpu_out.data(), gpu_places.data()});
  EXPECT_EQ(gpu_places.download(), places);
  test::expect_near(gpu_out.download(), out, "largest");
  launch(test::cpu(), MaxPoolGrad{dtype_of<T>, accumulate, shape, grad.data(), places.data(), in_grad.data()});
  launch(test::gpu(),
         MaxPoolGrad{dtype_of<T>, accumulate, shape, gpu_grad.data(), gpu_places.data(), gpu_in_grad.data()});
  test::expect_near(gpu_in_grad.download(), in_grad, "gradient");
}

template <class T>
void compare_mean(const PoolShape& shape, const Divisor& divisor, Accumulate accumulate) {
  test::Rng rng(7);
  const auto in = test::random_values<T>(rng, shape.planes * shape.in_plane());
  const auto grad = test::random_values<T>(rng, shape.planes * shape.out_plane());
  auto out = grad;
  auto in_grad = in;
  const DeviceArray<T> gpu_in(in), gpu_grad(grad), gpu_out(out), gpu_in_grad(in_grad);
  launch(test::cpu(), AvgPool{dtype_of<T>, shape, divisor, in.data(), out.data()});
  launch(test::gpu(), AvgPool{dtype_of<T>, shape, divisor, gpu_in.data(), gpu_out.data()});
  test::expect_near(gpu_out.download(), out, "mean");
  launch(test::cpu(), AvgPoolGrad{dtype_of<T>, accumulate, shape, divisor, grad.data(), in_grad.data()});
  launch(test::gpu(), AvgPoolGrad{dtype_of<T>, accumulate, shape, divisor, gpu_grad.data(), gpu_in_grad.data()});
  test::expect_near(gpu_in_grad.download(), in_grad, "gradient");
}

TEST(CudaPool, AgreesWithTheCpu) {
  TANDEM_NEEDS_GPU();
  for (const PoolShape& shape : test::awkward_pools()) {
    SCOPED_TRACE(
        fmt::format("{} of {}x{} to {}x{}", shape.planes, shape.in[0], shape.in[1], shape.out[0], shape.out[1]));
    compare_largest<float>(shape, Accumulate::no);
    compare_largest<Float16>(shape, Accumulate::yes);
    compare_mean<float>(shape, {true, 0}, Accumulate::yes);
    compare_mean<double>(shape, {false, 0}, Accumulate::no);
    compare_mean<BFloat16>(shape, {true, 7}, Accumulate::no);
  }
  for (const PoolShape& shape : test::dilated_pools()) {
    compare_largest<double>(shape, Accumulate::yes);
  }
}

}  // namespace
}  // namespace tandem::kernels
