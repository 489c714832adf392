#include <ostream>

#include <fmt/format.h>

#include <tandem/nn/module_ref.h>

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

}  // namespace tandem::inline v0::nn
