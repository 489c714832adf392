#include <algorithm>
#include <cmath>
#include <ostream>

#include <fmt/format.h>

#include <tandem/tensor/raw.h>
#include <tandem/tensor/tensor.h>

namespace tandem::inline v0 {

namespace {

constexpr std::int64_t kEdge = 3;          // entries shown at each end of a long dimension
constexpr std::int64_t kThreshold = 1000;  // elements from which on long dimensions are shortened

// One way to write all numbers of a tensor, wide enough for the widest.
struct Style {
  bool floating = true;
  bool scientific = false;
  bool integral = false;  // floating values without fractions: "1."
  std::size_t width = 0;

  std::string write(double value) const {
    if (!floating) {
      return fmt::format("{}", static_cast<std::int64_t>(value));
    }
    if (!std::isfinite(value)) {
      return fmt::format("{}", value);
    }
    if (scientific) {
      return fmt::format("{:.4e}", value);
    }
    return integral ? fmt::format("{:.0f}.", value) : fmt::format("{:.4f}", value);
  }
};

Style choose_style(const std::vector<double>& values, bool floating) {
  Style style{.floating = floating};
  double largest = 0;
  double smallest = INFINITY;
  style.integral = true;
  for (const double value : values) {
    if (std::isfinite(value)) {
      style.integral = style.integral && value == std::nearbyint(value);
      largest = std::max(largest, std::abs(value));
      smallest = value != 0 ? std::min(smallest, std::abs(value)) : smallest;
    }
  }
  style.scientific =
      largest >= 1e8 || (!style.integral && (largest / smallest > 1e3 || largest >= 1e5 || largest < 1e-3));
  style.scientific = style.scientific && largest > 0;
  for (const double value : values) {
    style.width = std::max(style.width, style.write(value).size());
  }
  return style;
}

struct Printer {
  const Tensor& tensor;
  bool shortened;
  Style style;
  std::string text;

  void print(const detail::View& view, int depth) {
    if (view.sizes.ndim() == 0) {
      const std::string value =
          tensor.dtype() == DType::boolean ? (read(view) != 0 ? "true" : "false") : style.write(read(view));
      text += fmt::format("{:>{}}", value, tensor.dim() == 0 ? 0 : style.width);
      return;
    }
    text += '[';
    const std::int64_t size = view.sizes[0];
    for (std::int64_t i = 0; i < size; ++i) {
      if (i > 0) {
        text += ',';
        text += view.sizes.ndim() == 1 ? std::string(" ")
                                       : std::string(static_cast<std::size_t>(view.sizes.ndim() - 1), '\n') +
                                             std::string(static_cast<std::size_t>(depth + 1), ' ');
      }
      if (shortened && size > 2 * kEdge && i == kEdge) {
        text += "...";
        i = size - kEdge - 1;
        continue;
      }
      print(detail::select(view, 0, i), depth + 1);
    }
    text += ']';
  }

  static double read(const detail::View& scalar) { return Tensor(scalar).item<double>(); }
};

void collect(const detail::View& view, bool shortened, std::vector<double>& values) {
  if (view.sizes.ndim() == 0) {
    values.push_back(Printer::read(view));
    return;
  }
  for (std::int64_t i = 0; i < view.sizes[0]; ++i) {
    if (shortened && view.sizes[0] > 2 * kEdge && i == kEdge) {
      i = view.sizes[0] - kEdge;
    }
    collect(detail::select(view, 0, i), shortened, values);
  }
}

}  // namespace

std::string to_string(const Tensor& tensor) {
  if (!tensor.defined()) {
    return "tensor(undefined)";
  }
  const bool shortened = tensor.numel() > kThreshold;
  std::vector<double> values;
  collect(tensor.raw(), shortened, values);
  Printer printer{tensor, shortened, choose_style(values, is_floating_point(tensor.dtype())), "tensor("};
  printer.print(tensor.raw(), 7);
  std::string& text = printer.text;
  if (tensor.numel() == 0 && tensor.dim() != 1) {
    text += fmt::format(", shape={}", to_string(tensor.shape()));
  }
  if (tensor.dtype() != DType::f32 && tensor.dtype() != DType::i64 && tensor.dtype() != DType::boolean) {
    text += fmt::format(", dtype={}", name(tensor.dtype()));
  }
  if (tensor.device() != Device()) {
    text += fmt::format(", device={}", to_string(tensor.device()));
  }
  if (tensor.requires_grad()) {
    text += ", requires_grad=true";
  }
  return text + ")";
}

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) { return out << to_string(tensor); }

}  // namespace tandem::inline v0
