#include <fmt/format.h>

#include <tandem/kernels/matmul.h>

#include "kernel/case.h"

// Products of a linear layer: y = x w^T with w [out, in], and its two gradients; and products of many small matrices.

namespace bench::kernel {

namespace {

using tandem::kernels::BatchedMatmul;
using tandem::kernels::Matmul;

enum class Product : std::uint8_t { forward, data_gradient, weight_gradient };

struct Shape {
  std::int64_t batch, in, out;
};

std::string text_of(const Shape& shape) { return fmt::format("{}x{}x{}", shape.batch, shape.in, shape.out); }

Case product_case(DType dtype, Product product, const Shape& shape) {
  const auto [batch, in, out] = shape;
  Case made;
  const void* left = nullptr;
  const void* right = nullptr;
  Matmul kernel{.dtype = dtype, .m = 0, .n = 0, .k = 0, .a = {}, .b = {}, .out = nullptr, .out_stride = 0};
  const char* name = nullptr;
  switch (product) {
    case Product::forward:
      name = "product";
      left = made.data.random(dtype, batch * in);
      right = made.data.random(dtype, out * in);
      kernel.m = batch, kernel.n = out, kernel.k = in;
      kernel.a = {left, in, 1};
      kernel.b = {right, 1, in};
      break;
    case Product::data_gradient:
      name = "product data gradient";
      left = made.data.random(dtype, batch * out);
      right = made.data.random(dtype, out * in);
      kernel.m = batch, kernel.n = in, kernel.k = out;
      kernel.a = {left, out, 1};
      kernel.b = {right, in, 1};
      break;
    case Product::weight_gradient:
      name = "product weight gradient";
      left = made.data.random(dtype, batch * out);
      right = made.data.random(dtype, batch * in);
      kernel.m = out, kernel.n = in, kernel.k = batch;
      kernel.a = {left, 1, out};
      kernel.b = {right, in, 1};
      break;
  }
  kernel.out = made.data.zeros(dtype, kernel.m * kernel.n);
  kernel.out_stride = kernel.n;
  made.run = launches(kernel);
  made.passes = {{reads(left, dtype, kernel.m * kernel.k)},
                 {reads(right, dtype, kernel.k * kernel.n)},
                 {writes(kernel.out, dtype, kernel.m * kernel.n)}};
  made.flops = 2.0 * static_cast<double>(kernel.m) * static_cast<double>(kernel.n) * static_cast<double>(kernel.k);
  made.operation = {.name = name, .dtype = "", .sizes = {batch, in, out}, .in = {left, right}, .out = {kernel.out}};
  return made;
}

// Products of `count` pairs of square matrices, like those of attention.
Case batched_case(DType dtype, Size size) {
  const std::int64_t count = size == Size::large ? 1024 : size == Size::small ? 4 : 2;
  const std::int64_t side = size == Size::tiny ? 5 : 64;
  Case made;
  const void* a = made.data.random(dtype, count * side * side);
  const void* b = made.data.random(dtype, count * side * side);
  void* out = made.data.zeros(dtype, count * side * side);
  made.run = launches(BatchedMatmul{.matrix = {.dtype = dtype,
                                               .m = side,
                                               .n = side,
                                               .k = side,
                                               .a = {a, side, 1},
                                               .b = {b, side, 1},
                                               .out = out,
                                               .out_stride = side},
                                    .batch = {1, {count}},
                                    .a = along(a, side * side),
                                    .b = along(b, side * side),
                                    .out = along(out, side * side)});
  made.passes = {{reads(a, dtype, count * side * side), reads(b, dtype, count * side * side),
                  writes(out, dtype, count * side * side)}};
  made.flops = 2.0 * static_cast<double>(count * side * side * side);
  made.operation = {.name = "batched product", .dtype = "", .sizes = {count, side}, .in = {a, b}, .out = {out}};
  return made;
}

}  // namespace

void add_products(Cases& cases) {
  struct Sized {
    Size size;
    Shape shape;
    std::vector<DType> dtypes;
  };
  const std::vector<Sized> shapes{{Size::tiny, {3, 5, 4}, kFloats},
                                  {Size::small, {16, 128, 256}, {DType::f32}},
                                  {Size::small, {32, 10, 1}, {DType::f32}},
                                  {Size::small, {128, 784, 512}, kFloats},
                                  {Size::large, {1024, 1024, 1024}, kFloats},
                                  {Size::large, {256, 1024, 4096}, {DType::f32, DType::bf16}},
                                  {Size::large, {1, 4096, 4096}, {DType::f32}}};
  const std::pair<Product, const char*> products[] = {{Product::forward, "forward"},
                                                      {Product::data_gradient, "data gradient"},
                                                      {Product::weight_gradient, "weight gradient"}};
  for (const auto& [product, name] : products) {
    for (const Sized& sized : shapes) {
      cases.add(
          "matmul", fmt::format("{} {}", name, text_of(sized.shape)), sized.dtypes,
          [product = product, shape = sized.shape](DType dtype, Size) { return product_case(dtype, product, shape); },
          {sized.size});
    }
  }
  cases.add("matmul", "batched 64x64x64", kFloats, batched_case);
}

}  // namespace bench::kernel
