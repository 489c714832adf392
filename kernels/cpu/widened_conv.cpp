#include <tandem/kernels/cpu/widened_conv.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tandem/core/thread_pool.h>
#include <tandem/kernels/cpu/half_rows.h>
#include <tandem/kernels/cpu/patch_product.h>
#include <tandem/kernels/scratch.h>

namespace tandem::inline v0::kernels::cpu {

namespace {

constexpr std::int64_t kImages = std::int64_t{1} << 20;  // elements of several images
constexpr std::int64_t kStrip = std::int64_t{1} << 23;   // elements of a strip of one

// All channels of some images, or of a strip of them.
struct Box {
  std::int64_t channels;
  Sizes2 whole;  // of an image
  std::int64_t image, images;
  Sizes2 begin, size;

  std::int64_t count() const { return images * channels * size[0] * size[1]; }
};

// The convolution of a part of the images.
struct Part {
  ConvShape shape;
  Box in, out;
};

// Some images as a whole.
Part images_of(const ConvShape& shape, std::int64_t image, std::int64_t images) {
  Part part{.shape = shape,
            .in = {shape.groups * shape.in_channels, shape.in, image, images, {}, shape.in},
            .out = {shape.groups * shape.out_channels, shape.out, image, images, {}, shape.out}};
  part.shape.batch = images;
  return part;
}

// Elements [begin, end) of the images along dimension d, with those outputs that read them; or the other way round.
Part strip_of_in(Part part, std::size_t d, std::int64_t begin, std::int64_t end) {
  ConvShape& shape = part.shape;
  const std::int64_t padding = shape.padding[d];
  const std::int64_t past = begin + padding - (shape.window[d] - 1) * shape.dilation[d];
  const std::int64_t first = std::clamp<std::int64_t>(past > 0 ? up(past, shape.stride[d]) : 0, 0, shape.out[d] - 1);
  const std::int64_t last = std::clamp<std::int64_t>((end - 1 + padding) / shape.stride[d], first, shape.out[d] - 1);
  shape.padding[d] = padding + begin - first * shape.stride[d];
  shape.in[d] = part.in.size[d] = end - begin;
  shape.out[d] = part.out.size[d] = last + 1 - first;
  part.in.begin[d] = begin;
  part.out.begin[d] = first;
  return part;
}
Part strip_of_out(Part part, std::size_t d, std::int64_t begin, std::int64_t end) {
  ConvShape& shape = part.shape;
  const std::int64_t low = begin * shape.stride[d] - shape.padding[d];
  const std::int64_t high = (end - 1) * shape.stride[d] - shape.padding[d] + (shape.window[d] - 1) * shape.dilation[d];
  const std::int64_t first = std::clamp<std::int64_t>(low, 0, shape.in[d] - 1);
  const std::int64_t last = std::clamp<std::int64_t>(high, first, shape.in[d] - 1);
  shape.padding[d] = first - low;
  shape.out[d] = part.out.size[d] = end - begin;
  shape.in[d] = part.in.size[d] = last + 1 - first;
  part.out.begin[d] = begin;
  part.in.begin[d] = first;
  return part;
}

// Calls body(part) for parts that hold all elements of the images, or all outputs, once.
template <class Body>
void for_each_part(const ConvShape& shape, bool of_in, Body&& body) {
  const std::int64_t size = shape.in_size() + shape.out_size();
  const std::int64_t some = 1 + kImages / (size + 1);
  const Sizes2& cut = of_in ? shape.in : shape.out;
  const std::size_t d = cut[0] < cut[1] ? 1 : 0;
  const bool is_empty = shape.in_size() == 0 || shape.out_size() == 0;
  const std::int64_t strips = is_empty ? 1 : std::clamp<std::int64_t>(up(size, kStrip), 1, cut[d]);
  const std::int64_t step = up(cut[d], strips);
  for (std::int64_t image = 0; image < shape.batch; image += some) {
    const Part part = images_of(shape, image, std::min(some, shape.batch - image));
    if (strips == 1) {
      body(part);
      continue;
    }
    for (std::int64_t begin = 0; begin < cut[d]; begin += step) {
      const std::int64_t end = std::min(begin + step, cut[d]);
      body(of_in ? strip_of_in(part, d, begin, end) : strip_of_out(part, d, begin, end));
    }
  }
}

// Calls body(element of the array, element of the box, count) for runs of elements that are neighbours in both.
template <class Body>
void for_each_run(const Box& box, Body&& body) {
  const bool lines = box.size[1] == box.whole[1];
  const std::int64_t run = lines ? box.size[0] * box.size[1] : box.size[1];
  const std::int64_t runs = lines ? 1 : box.size[0];
  core::parallel_for(
      box.images * box.channels, 1 + 65'536 / (runs * run + 1), [&](std::int64_t first, std::int64_t end) {
        for (std::int64_t i = first * runs; i < end * runs; ++i) {
          const std::int64_t plane = box.image * box.channels + i / runs;
          body((plane * box.whole[0] + box.begin[0] + i % runs) * box.whole[1] + box.begin[1], i * run, run);
        }
      });
}

float* floats(ScratchArena& scratch, std::int64_t count) {
  return scratch.allocate_array<float>(static_cast<std::size_t>(count));
}

template <class T>
const float* widened(ScratchArena& scratch, const void* from, std::int64_t count) {
  if (from == nullptr) {
    return nullptr;
  }
  float* const to = floats(scratch, count);
  widen(to, static_cast<const T*>(from), count);
  return to;
}

template <class T>
const float* widened(ScratchArena& scratch, const void* from, const Box& box) {
  float* const to = floats(scratch, box.count());
  for_each_run(box, [&](std::int64_t at, std::int64_t in_box, std::int64_t count) {
    widen(to + in_box, static_cast<const T*>(from) + at, count);
  });
  return to;
}

template <class T>
void round_to(T* to, const float* sums, std::int64_t count, Accumulate accumulate, bool relu = false) {
  if (accumulate == Accumulate::no) {
    return narrow(to, sums, count);
  }
  change_pieces(to, count, [&](float* before, std::int64_t first, std::int64_t here) {
    for (std::int64_t i = 0; i < here; ++i) {
      const float sum = before[i] + sums[first + i];
      before[i] = relu && sum < 0 ? 0 : sum;
    }
  });
}

template <class T>
void round_to(void* to, const float* sums, const Box& box, Accumulate accumulate, bool relu = false) {
  for_each_run(box, [&](std::int64_t at, std::int64_t in_box, std::int64_t count) {
    round_to(static_cast<T*>(to) + at, sums + in_box, count, accumulate, relu);
  });
}

}  // namespace

template <class T>
void convolve_widened(Context& context, const Conv& kernel) {
  const ConvShape& shape = kernel.shape;
  ScratchArena& scratch = context.scratch;
  const ScratchScope scope(scratch);
  const float* const weight = widened<T>(scratch, kernel.weight, shape.weight_size());
  const float* const bias = widened<T>(scratch, kernel.bias, shape.groups * shape.out_channels);
  for_each_part(shape, false, [&](const Part& part) {
    const ScratchScope inner(scratch);
    float* const out = floats(scratch, part.out.count());
    run(OnCpu{}, context,
        Conv{.dtype = DType::f32,
             .shape = part.shape,
             .in = widened<T>(scratch, kernel.in, part.in),
             .weight = weight,
             .bias = bias,
             .out = out,
             .relu = kernel.relu && kernel.accumulate == Accumulate::no});
    round_to<T>(kernel.out, out, part.out, kernel.accumulate, kernel.relu);
  });
}

template <class T>
void convolve_back_widened(Context& context, const ConvInGrad& kernel) {
  const ConvShape& shape = kernel.shape;
  ScratchArena& scratch = context.scratch;
  const ScratchScope scope(scratch);
  const float* const weight = widened<T>(scratch, kernel.weight, shape.weight_size());
  const float* const bias = widened<T>(scratch, kernel.bias, shape.groups * shape.in_channels);
  for_each_part(shape, true, [&](const Part& part) {
    const ScratchScope inner(scratch);
    float* const in_grad = floats(scratch, part.in.count());
    run(OnCpu{}, context,
        ConvInGrad{.dtype = DType::f32,
                   .shape = part.shape,
                   .grad = widened<T>(scratch, kernel.grad, part.out),
                   .weight = weight,
                   .bias = bias,
                   .in_grad = in_grad});
    round_to<T>(kernel.in_grad, in_grad, part.in, kernel.accumulate);
  });
}

template <class T>
void weight_gradient_widened(Context& context, const ConvWeightGrad& kernel) {
  const ConvShape& shape = kernel.shape;
  ScratchArena& scratch = context.scratch;
  const ScratchScope scope(scratch);
  float* const sums = floats(scratch, shape.weight_size());
  std::fill_n(sums, shape.weight_size(), 0.0F);
  for_each_part(shape, false, [&](const Part& part) {
    const ScratchScope inner(scratch);
    run(OnCpu{}, context,
        ConvWeightGrad{.dtype = DType::f32,
                       .accumulate = Accumulate::yes,
                       .shape = part.shape,
                       .grad = widened<T>(scratch, kernel.grad, part.out),
                       .in = widened<T>(scratch, kernel.in, part.in),
                       .weight_grad = sums});
  });
  round_to(static_cast<T*>(kernel.weight_grad), sums, shape.weight_size(), kernel.accumulate);
}

template void convolve_widened<BFloat16>(Context&, const Conv&);
template void convolve_widened<Float16>(Context&, const Conv&);
template void convolve_back_widened<BFloat16>(Context&, const ConvInGrad&);
template void convolve_back_widened<Float16>(Context&, const ConvInGrad&);
template void weight_gradient_widened<BFloat16>(Context&, const ConvWeightGrad&);
template void weight_gradient_widened<Float16>(Context&, const ConvWeightGrad&);

}  // namespace tandem::inline v0::kernels::cpu
