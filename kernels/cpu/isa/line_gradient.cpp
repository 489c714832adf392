#include <array>
#include <utility>

#include <tandem/kernels/cpu/isa/simd.h>
#include <tandem/kernels/cpu/patches.h>

// The gradient of the weights of few outputs, in f32. Lanes run along the lines of the images, of which nothing is
// packed: those of outputs would be all but empty.

namespace tandem::inline v0::kernels::cpu::TANDEM_ISA {

namespace {

// Some lines of positions, and the row of the window that they are seen through.
struct Lines {
  std::int64_t begin, end;
  std::int64_t ty;
};

// Adds the products of kRows outputs' gradients with one channel to sums, which lie in lanes: that of output r and
// place t of the window's row at sums + (r * stride + t) * kLanes.
template <int kRows, int kTaps>
void add_lines(const PatchGradient& gradient, const Lines& lines, const float* in, const float* grad, float* sums,
               std::int64_t stride) {
  const PatchAxis& axis_y = gradient.patches.y;
  const PatchAxis& axis_x = gradient.patches.x;
  const std::int64_t positions = gradient.patches.positions();
  Vec sum[kRows][kTaps] = {};
  // Adds the products of the kLanes positions from x on, in line y. `wanted` masks the positions and `inside` what each
  // tap reads; both are null where nothing lies outside.
  const auto multiply = [&](std::int64_t y, std::int64_t x, const Mask* wanted,
                            const Mask* inside) __attribute__((always_inline)) {
    const float* const line = in + axis_y.at(y, lines.ty) * axis_x.size;
    const float* const of_line = grad + y * axis_x.positions + x;
    Vec g[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      g[r] = wanted == nullptr ? load(of_line + r * positions) : load(of_line + r * positions, *wanted);
    }
#pragma GCC unroll 8
    for (int t = 0; t < kTaps; ++t) {
      const float* const seen = line + axis_x.at(x, t);
      const Vec v = inside == nullptr ? load(seen) : load(seen, inside[t]);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        sum[r][t] = fma(v, g[r], sum[r][t]);
      }
    }
  };
  // Lines whose window has its row lines.ty outside of the image add nothing. Positions in [first_inside, past_inside),
  // which are one step apart, need no mask.
  std::int64_t begin = lines.begin;
  std::int64_t end = lines.end;
  while (begin < end && axis_y.at(begin, lines.ty) < 0) {
    ++begin;
  }
  while (begin < end && axis_y.at(end - 1, lines.ty) >= axis_y.size) {
    --end;
  }
  std::int64_t first_inside = 0;
  while (first_inside < axis_x.positions && first_inside + axis_x.low() < 0) {
    first_inside += kLanes;
  }
  std::int64_t past_inside = first_inside;
  while (past_inside + kLanes <= axis_x.positions && past_inside + axis_x.high() + kLanes <= axis_x.size) {
    past_inside += kLanes;
  }
  // Along the lines first: the processor then fetches ahead what comes from memory.
  for (std::int64_t y = begin; y < end; ++y) {
    for (std::int64_t x = first_inside; x < past_inside; x += kLanes) {
      multiply(y, x, nullptr, nullptr);
    }
  }
  for (std::int64_t x = 0; x < axis_x.positions; x += kLanes) {
    if (x >= first_inside && x < past_inside) {
      continue;
    }
    const Mask wanted = first(axis_x.positions - x);
    Mask inside[kTaps];
#pragma GCC unroll 8
    for (int t = 0; t < kTaps; ++t) {
      const std::int64_t at = axis_x.at(x, t);
      inside[t] = between(-at, axis_x.size - at);
    }
    for (std::int64_t y = begin; y < end; ++y) {
      multiply(y, x, &wanted, inside);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int t = 0; t < kTaps; ++t) {
      float* const to = sums + (r * stride + t) * kLanes;
      store(to, load(to) + sum[r][t]);
    }
  }
}

using AddLines = void (*)(const PatchGradient&, const Lines&, const float*, const float*, float*, std::int64_t);

// Products that are added to one sum before it is added to others.
constexpr std::int64_t kChain = 256;

// So many outputs at a time that their sums stay in registers.
constexpr int kLineSums = kLanes == 16 ? 25 : 10;
constexpr int rows_for(int taps) { return kLineSums / taps > 8 ? 8 : kLineSums / taps > 1 ? kLineSums / taps : 1; }

// The function for `rows` outputs and kTaps places.
template <int kTaps>
AddLines lines_function(std::int64_t rows) {
  static constexpr auto kFunctions = []<int... row>(std::integer_sequence<int, row...>) {
    return std::array<AddLines, sizeof...(row)>{&add_lines<row + 1, kTaps>...};
  }(std::make_integer_sequence<int, rows_for(kTaps)>());
  return kFunctions[static_cast<std::size_t>(rows - 1)];
}

struct OfTaps {
  std::int64_t rows;
  AddLines (*function)(std::int64_t rows);
};
constexpr auto kOfTaps = []<int... tap>(std::integer_sequence<int, tap...>) {
  return std::array<OfTaps, sizeof...(tap)>{OfTaps{rows_for(tap + 1), &lines_function<tap + 1>}...};
}(std::make_integer_sequence<int, kLineTaps>());

}  // namespace

bool line_gradient_pays(const PatchGradient& gradient) {
  // The multiply-adds of a line, for lanes along it and for lanes of outputs. With one tap there would be as many
  // loads.
  const std::int64_t wide = gradient.patches.x.positions;
  const std::int64_t along = gradient.rows * ((wide + kLanes - 1) / kLanes);
  const std::int64_t of_outputs = wide * ((gradient.rows + kLanes - 1) / kLanes);
  constexpr std::int64_t kMostSums = std::int64_t{1} << 18;  // they have memory for each lane
  const std::int64_t taps = gradient.patches.x.taps;
  return gradient.patches.x.step == 1 && taps > 1 && taps <= kLineTaps && gradient.rows <= 8 &&
         gradient.rows * gradient.patches.depth() <= kMostSums && 5 * along < 4 * of_outputs;
}

void line_gradient_f32(const PatchGradient& gradient, const LineRange& range, float* sums, ScratchArena& scratch) {
  const Patches& patches = gradient.patches;
  const PatchGradient one = gradient.of_group<float>(range.group);
  const OfTaps& of_taps = kOfTaps[static_cast<std::size_t>(patches.x.taps - 1)];
  const std::int64_t depth = patches.depth();
  const std::int64_t count = gradient.rows * depth;
  // A chain of more additions would be less exact.
  const std::int64_t vectors = (patches.x.positions + kLanes - 1) / kLanes;
  const std::int64_t high = kChain / vectors > 1 ? kChain / vectors : 1;
  const ScratchScope scope(scratch);
  float* const lanes = scratch.allocate_array<float>(static_cast<std::size_t>(count * kLanes));
  for (std::int64_t i = 0; i < count; ++i) {
    store(lanes + i * kLanes, broadcast(0));
  }
  const std::int64_t in_image = patches.y.positions;
  for (std::int64_t begin = range.begin, end = begin; begin < range.end; begin = end) {
    const std::int64_t image = begin / in_image;
    end = (image + 1) * in_image < range.end ? (image + 1) * in_image : range.end;
    const float* const in = static_cast<const float*>(one.patches.data) + image * patches.image_stride;
    const float* const grad = static_cast<const float*>(one.grad) + image * one.grad_image_stride;
    for (std::int64_t line = 0; line < patches.channels * patches.y.taps; ++line) {
      const float* const channel = in + line / patches.y.taps * patches.y.size * patches.x.size;
      for (std::int64_t row = 0; row < gradient.rows; row += of_taps.rows) {
        const std::int64_t rest = gradient.rows - row;
        const AddLines add = of_taps.function(rest < of_taps.rows ? rest : of_taps.rows);
        for (std::int64_t y = begin; y < end; y += high) {
          const std::int64_t past = y + high < end ? y + high : end;
          add(gradient, {y - image * in_image, past - image * in_image, line % patches.y.taps}, channel,
              grad + row * patches.positions(), lanes + (row * depth + line * patches.x.taps) * kLanes, depth);
        }
      }
    }
  }
  for (std::int64_t i = 0; i < count; ++i) {
    float total = 0;
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      total += lanes[i * kLanes + lane];
    }
    sums[i] = total;
  }
}

}  // namespace tandem::inline v0::kernels::cpu::TANDEM_ISA
