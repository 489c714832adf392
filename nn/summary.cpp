#include <tandem/nn/summary.h>

#include <algorithm>
#include <array>
#include <ostream>
#include <unordered_set>

#include <fmt/format.h>

#include <tandem/core/check.h>

// A model as text: the tree of its modules, and the table of its parameters.

namespace tandem::inline v0::nn {

namespace {

void print(std::string& out, const ModuleRef& module, std::size_t indent);

void print_children(std::string& out, const ModuleRef& module, std::size_t indent) {
  for (const auto& [name, child] : module.named_children()) {
    out += std::string(indent, ' ') + fmt::format("({}): ", name);
    print(out, child, indent);
    out += '\n';
  }
}

// Like print_children(), but equal neighbours share a line.
void print_list(std::string& out, const ModuleRef& list, std::size_t indent) {
  const NamedModules children = list.named_children();
  std::vector<std::string> texts;
  for (const auto& [name, child] : children) {
    print(texts.emplace_back(), child, indent);
  }
  for (std::size_t first = 0, last = 0; first < children.size(); first = last) {
    last = first + 1;
    while (last < children.size() && texts[last] == texts[first]) {
      ++last;
    }
    const std::string& name = children[first].first;
    out += std::string(indent, ' ') +
           (last == first + 1 ? fmt::format("({}): ", name)
                              : fmt::format("({}-{}): {} x ", name, children[last - 1].first, last - first)) +
           texts[first] + '\n';
  }
}

void print(std::string& out, const ModuleRef& module, std::size_t indent) {
  out += module.type_name() + "(";
  if (module.children().empty()) {
    out += module.description();
  } else {
    out += '\n';
    if (!module.description().empty()) {
      out += std::string(indent + 2, ' ') + module.description() + '\n';
    }
    (module.type_name() == "ModuleList" ? print_list : print_children)(out, module, indent + 2);
    out.append(indent, ' ');
  }
  out += ')';
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const ModuleRef& module) {
  std::string text;
  print(text, module, 0);
  return out << text;
}

std::vector<std::string> layer_lines(const ModuleRef& module) {
  std::vector<std::string> lines;
  for (const auto& [name, layer] : module.named_modules()) {
    lines.push_back(fmt::format("layer '{}': {}({})", name, layer.type_name(), layer.description()));
  }
  return lines;
}

namespace {

using Cells = std::array<std::string, 5>;

// Widest name, type and parameters. With two counts of up to 11 digits and commas the table has 100 columns.
constexpr std::array<std::size_t, 3> kWidest{24, 14, 32};

// Cuts text to `width` columns. Names keep their end, which tells layers apart; other texts keep their beginning.
std::string shortened(const std::string& text, std::size_t width, bool keep_end) {
  if (text.size() <= width) {
    return text;
  }
  return keep_end ? "..." + text.substr(text.size() - (width - 3)) : text.substr(0, width - 3) + "...";
}

// 1234567: "1,234,567".
std::string grouped(std::int64_t number) {
  std::string digits = fmt::format("{}", number);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<std::size_t>(at), 1, ',');
  }
  return digits;
}

Cells cells_of(const SummaryRow& row) {
  const bool has_own = !row.parameters.empty();
  return {shortened(row.name.empty() ? "(model)" : row.name, kWidest[0], true), shortened(row.type, kWidest[1], false),
          shortened(row.parameters, kWidest[2], false), has_own ? grouped(row.num_parameters) : "",
          has_own ? grouped(row.trainable_parameters) : ""};
}

}  // namespace

Summary summary(const ModuleRef& module) {
  Summary result;
  std::unordered_set<const void*> seen;
  for (const auto& [name, part] : module.named_modules()) {
    SummaryRow row{name, part.type_name(), "", 0, 0};
    for (const auto& [own, slot] : part.named_parameters(false)) {
      const bool tied = !seen.insert(slot.unresolved()).second;
      row.parameters +=
          fmt::format("{}{} {}{}", row.parameters.empty() ? "" : ", ", own, slot.shape(), tied ? " (tied)" : "");
      row.num_parameters += tied ? 0 : slot.numel();
      row.trainable_parameters += tied || !slot.requires_grad() ? 0 : slot.numel();
    }
    result.num_parameters += row.num_parameters;
    result.trainable_parameters += row.trainable_parameters;
    result.rows.push_back(std::move(row));
  }
  result.num_bytes = module.num_bytes();
  return result;
}

std::ostream& operator<<(std::ostream& out, const Summary& summary) {
  std::vector<Cells> lines{{"name", "type", "parameters", "count", "trainable"}};
  for (const SummaryRow& row : summary.rows) {
    lines.push_back(cells_of(row));
  }
  std::array<std::size_t, 5> widths{};
  for (const Cells& cells : lines) {
    for (std::size_t i = 0; i < cells.size(); ++i) {
      widths[i] = std::max(widths[i], cells[i].size());
    }
  }
  const std::size_t total = widths[0] + widths[1] + widths[2] + widths[3] + widths[4] + 8;
  const std::string rule(total, '-');
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const Cells& c = lines[i];
    std::string line = fmt::format("{:<{}}  {:<{}}  {:<{}}  {:>{}}  {:>{}}", c[0], widths[0], c[1], widths[1], c[2],
                                   widths[2], c[3], widths[3], c[4], widths[4]);
    line.erase(line.find_last_not_of(' ') + 1);
    out << line << '\n';
    if (i == 0) {
      out << rule << '\n';
    }
  }
  return out << rule << '\n'
             << fmt::format("{} parameters, {} trainable, {} bytes\n", grouped(summary.num_parameters),
                            grouped(summary.trainable_parameters), grouped(summary.num_bytes));
}

}  // namespace tandem::inline v0::nn
