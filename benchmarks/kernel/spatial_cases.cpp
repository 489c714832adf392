#include <fmt/format.h>

#include <tandem/kernels/conv.h>
#include <tandem/kernels/pool.h>

#include "kernel/case.h"

// Convolutions and poolings. The sizes of an operation: batch, groups, channels in and out of a group, side of the
// images, window, stride, padding.

namespace bench::kernel {

namespace {

using namespace tandem::kernels;

enum class Part : std::uint8_t { forward, data_gradient, weight_gradient };

struct Layer {
  const char* name;
  std::int64_t batch, groups, in, out;  // channels of a group
  std::int64_t side, window, stride, padding;

  ConvShape shape() const {
    const std::int64_t result = (side + 2 * padding - window) / stride + 1;
    return {.batch = batch,
            .groups = groups,
            .in_channels = in,
            .out_channels = out,
            .in = {side, side},
            .out = {result, result},
            .window = {window, window},
            .stride = {stride, stride},
            .padding = {padding, padding},
            .dilation = {1, 1}};
  }
};

Case conv_case(DType dtype, Part part, const Layer& layer) {
  const ConvShape shape = layer.shape();
  const std::int64_t ins = shape.batch * shape.in_size();
  const std::int64_t outs = shape.batch * shape.out_size();
  const std::int64_t weights = shape.weight_size();
  Case made;
  const void* left = part == Part::forward ? made.data.random(dtype, ins) : made.data.random(dtype, outs);
  const void* right = part == Part::weight_gradient ? made.data.random(dtype, ins) : made.data.random(dtype, weights);
  const char* name = nullptr;
  void* out = nullptr;
  switch (part) {
    case Part::forward:
      name = "conv";
      out = made.data.zeros(dtype, outs);
      made.run =
          launches(Conv{.dtype = dtype, .shape = shape, .in = left, .weight = right, .bias = nullptr, .out = out});
      break;
    case Part::data_gradient:
      name = "conv data gradient";
      out = made.data.zeros(dtype, ins);
      made.run = launches(
          ConvInGrad{.dtype = dtype, .shape = shape, .grad = left, .weight = right, .bias = nullptr, .in_grad = out});
      break;
    case Part::weight_gradient:
      name = "conv weight gradient";
      out = made.data.zeros(dtype, weights);
      made.run =
          launches(ConvWeightGrad{.dtype = dtype, .shape = shape, .grad = left, .in = right, .weight_grad = out});
      break;
  }
  made.passes = {{reads(left, dtype, part == Part::forward ? ins : outs)},
                 {reads(right, dtype, part == Part::weight_gradient ? ins : weights)},
                 {writes(out, dtype,
                         part == Part::forward         ? outs
                         : part == Part::data_gradient ? ins
                                                       : weights)}};
  made.flops = 2.0 * static_cast<double>(outs) * static_cast<double>(shape.depth());
  made.operation = {
      .name = name,
      .dtype = "",
      .sizes = {layer.batch, layer.groups, layer.in, layer.out, layer.side, layer.window, layer.stride, layer.padding},
      .in = {left, right},
      .out = {out}};
  return made;
}

PoolShape pool_shape(Size size) {
  const std::int64_t planes = size == Size::large ? 4096 : size == Size::small ? 32 : 3;
  const std::int64_t side = size == Size::tiny ? 6 : 56;
  return {.planes = planes,
          .in = {side, side},
          .out = {side / 2, side / 2},
          .adaptive = false,
          .window = {2, 2},
          .stride = {2, 2},
          .padding = {0, 0},
          .dilation = {1, 1}};
}

Case pool_case(DType dtype, Size size, bool mean) {
  const PoolShape shape = pool_shape(size);
  const std::int64_t ins = shape.planes * shape.in_plane();
  const std::int64_t outs = shape.planes * shape.out_plane();
  Case made;
  const void* in = made.data.random(dtype, ins);
  void* out = made.data.zeros(dtype, outs);
  made.passes = {{reads(in, dtype, ins), writes(out, dtype, outs)}};
  if (mean) {
    made.run = launches(AvgPool{.dtype = dtype, .shape = shape, .divisor = {true, 0}, .in = in, .out = out});
  } else {
    auto* places = static_cast<std::int32_t*>(made.data.zeros(DType::i32, outs));
    made.passes[0].push_back(writes(places, DType::i32, outs));
    made.run = launches(MaxPool{.dtype = dtype, .shape = shape, .in = in, .out = out, .places = places});
  }
  made.operation = {.name = mean ? "avg_pool" : "max_pool",
                    .dtype = "",
                    .sizes = {shape.planes, shape.in[0]},
                    .in = {in},
                    .out = {out}};
  return made;
}

Case pool_grad_case(DType dtype, Size size, bool mean) {
  const PoolShape shape = pool_shape(size);
  const std::int64_t ins = shape.planes * shape.in_plane();
  const std::int64_t outs = shape.planes * shape.out_plane();
  Case made;
  const void* grad = made.data.random(dtype, outs);
  void* in_grad = made.data.zeros(dtype, ins);
  made.passes = {{reads(grad, dtype, outs), writes(in_grad, dtype, ins)}};
  if (mean) {
    made.run =
        launches(AvgPoolGrad{.dtype = dtype, .shape = shape, .divisor = {true, 0}, .grad = grad, .in_grad = in_grad});
  } else {
    auto* places = static_cast<std::int32_t*>(made.data.zeros(DType::i32, outs));
    const void* in = made.data.random(dtype, ins);
    void* out = made.data.zeros(dtype, outs);
    launches(MaxPool{.dtype = dtype, .shape = shape, .in = in, .out = out, .places = places})();
    made.passes[0].push_back(reads(places, DType::i32, outs));
    made.run =
        launches(MaxPoolGrad{.dtype = dtype, .shape = shape, .grad = grad, .places = places, .in_grad = in_grad});
  }
  return made;
}

}  // namespace

void add_spatial(Cases& cases) {
  struct Sized {
    Size size;
    Layer layer;
    std::vector<DType> dtypes;
  };
  const std::vector<Sized> layers{
      {Size::tiny, {"3x3", 2, 1, 3, 4, 6, 3, 1, 1}, kFloats},
      {Size::small, {"LeNet's first", 64, 1, 1, 6, 28, 5, 1, 2}, {DType::f32}},
      {Size::small, {"LeNet's second", 64, 1, 6, 16, 14, 5, 1, 0}, {DType::f32}},
      {Size::large, {"3x3 64 channels", 16, 1, 64, 64, 56, 3, 1, 1}, kFloats},
      {Size::large, {"3x3 16 channels", 32, 1, 16, 16, 32, 3, 1, 1}, {DType::f32}},
      {Size::large, {"3x3 512 channels", 8, 1, 512, 512, 4, 3, 1, 1}, {DType::f32}},
      {Size::large, {"3x3 stride 2", 16, 1, 64, 128, 56, 3, 2, 1}, {DType::f32}},
      {Size::large, {"1x1", 16, 1, 64, 256, 56, 1, 1, 0}, {DType::f32}},
      {Size::large, {"7x7 stride 2", 8, 1, 3, 64, 224, 7, 2, 3}, {DType::f32}},
      {Size::large, {"depthwise", 8, 128, 1, 1, 56, 3, 1, 1}, {DType::f32}},
  };
  const std::pair<Part, const char*> parts[] = {
      {Part::forward, "forward"}, {Part::data_gradient, "data gradient"}, {Part::weight_gradient, "weight gradient"}};
  for (const auto& [part, name] : parts) {
    for (const Sized& sized : layers) {
      cases.add("conv", fmt::format("{} {}", name, sized.layer.name), sized.dtypes,
                [part = part, layer = sized.layer](DType dtype, Size) { return conv_case(dtype, part, layer); },
                {sized.size});
    }
  }
  for (const bool mean : {false, true}) {
    const char* const name = mean ? "mean" : "largest";
    cases.add("pool", name, kFloats, [mean](DType dtype, Size size) { return pool_case(dtype, size, mean); });
    cases.add("pool", fmt::format("{} gradient", name), kFloats,
              [mean](DType dtype, Size size) { return pool_grad_case(dtype, size, mean); });
  }
}

}  // namespace bench::kernel
