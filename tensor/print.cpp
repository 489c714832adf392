#include <algorithm>
#include <cmath>
#include <ostream>
#include <type_traits>
#include <vector>

#include <fmt/format.h>

#include <tandem/core/check.h>
#include <tandem/core/dispatch.h>
#include <tandem/tensor/raw.h>
#include <tandem/tensor/recorder.h>
#include <tandem/tensor/tensor.h>

namespace tandem::inline v0 {

namespace {

using detail::View;

constexpr std::int64_t kEdge = 3;          // entries shown at each end of a long dimension
constexpr std::int64_t kThreshold = 1000;  // number of elements above which long dimensions are shortened
constexpr std::size_t kLine = 80;          // columns of a terminal

// One format for all numbers of a tensor, wide enough for the widest.
struct Style {
  bool scientific = false;
  bool whole = true;  // floating values without fractions: "1."
  std::size_t width = 0;
};

template <class T>
T value_of(const View& scalar) {
  return core::dispatch_any(scalar.dtype,
                            [&]<class Stored>() { return static_cast<T>(*static_cast<const Stored*>(scalar.data())); });
}

std::string write(const View& scalar, const Style& style) {
  if (scalar.dtype == DType::boolean) {
    return value_of<bool>(scalar) ? "true" : "false";
  }
  if (!is_floating_point(scalar.dtype)) {
    return fmt::format("{}", value_of<std::int64_t>(scalar));
  }
  const double value = core::printable(value_of<double>(scalar));
  if (!std::isfinite(value)) {
    return fmt::format("{}", value);
  }
  return style.scientific ? fmt::format("{:.4e}", value)
         : style.whole    ? fmt::format("{:.0f}.", value)
                          : fmt::format("{:.4f}", value);
}

// The indices of a dimension that are shown; -1 stands for the omitted ones.
std::vector<std::int64_t> shown(std::int64_t size, bool shortened) {
  std::vector<std::int64_t> indices;
  for (std::int64_t i = 0; i < size; ++i) {
    if (shortened && size > 2 * kEdge && i == kEdge) {
      indices.push_back(-1);
      i = size - kEdge;
    }
    indices.push_back(i);
  }
  return indices;
}

template <class Body>
void for_each_shown(const View& view, bool shortened, Body&& body) {
  if (view.sizes.ndim() == 0) {
    body(view);
    return;
  }
  for (const std::int64_t i : shown(view.sizes[0], shortened)) {
    if (i >= 0) {
      for_each_shown(detail::select(view, 0, i), shortened, body);
    }
  }
}

// Whole numbers are written in full up to 10^8. Other numbers get four decimals, unless small values would lose their
// digits or a large one would take too much space.
Style choose_style(const View& view, bool shortened) {
  Style style;
  double largest = 0;
  double smallest = INFINITY;
  for_each_shown(view, shortened, [&](const View& scalar) {
    const double value = std::abs(value_of<double>(scalar));
    if (std::isfinite(value) && value != 0) {
      style.whole = style.whole && value == std::floor(value);
      largest = std::max(largest, value);
      smallest = std::min(smallest, value);
    }
  });
  style.scientific =
      largest >= 1e8 || (!style.whole && (largest > 1e3 * smallest || smallest < 1e-4 || largest < 1e-3));
  for_each_shown(view, shortened,
                 [&](const View& scalar) { style.width = std::max(style.width, write(scalar, style).size()); });
  return style;
}

struct Printer {
  bool shortened;
  Style style;
  std::string text = "tensor(";

  void print(const View& view, std::size_t indent) {
    const auto new_lines = [&](int count) {
      return "," + std::string(static_cast<std::size_t>(count), '\n') + std::string(indent + 1, ' ');
    };
    const int ndim = view.sizes.ndim();
    if (ndim == 0) {
      text += write(view, style);
      return;
    }
    text += '[';
    const std::size_t per_line = std::max<std::size_t>(1, (kLine - indent) / (style.width + 2));
    std::size_t done = 0;
    for (const std::int64_t i : shown(view.sizes[0], shortened)) {
      if (done > 0) {
        text += ndim > 1 ? new_lines(ndim - 1) : done % per_line == 0 ? new_lines(1) : std::string(", ");
      }
      if (i < 0) {
        text += "...";
      } else if (ndim == 1) {
        text += fmt::format("{:>{}}", write(detail::select(view, 0, i), style), style.width);
      } else {
        print(detail::select(view, 0, i), indent + 1);
      }
      ++done;
    }
    text += ']';
  }
};

}  // namespace

std::string to_string(const Tensor& tensor) {
  if (!tensor.defined()) {
    return "tensor(undefined)";
  }
  detail::note_host_access("to_string");
  const View view = detail::on_host(tensor.raw());
  const std::int64_t numel = view.numel();
  Printer printer{.shortened = numel > kThreshold, .style = {}};
  std::string& text = printer.text;
  if (numel == 0) {
    text += view.sizes.ndim() == 1 ? "[]" : fmt::format("[], shape={}", to_string(view.sizes));
  } else {
    printer.style = choose_style(view, printer.shortened);
    printer.print(view, text.size());
  }
  if (view.dtype != DType::f32 && view.dtype != DType::i64 && view.dtype != DType::boolean) {
    text += fmt::format(", dtype={}", name(view.dtype));
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
