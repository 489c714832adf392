#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <regex>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <cxxabi.h>

// Compares the machine code of the GPU's kernels with a table. It reads what `cuobjdump -res-usage` and `cuobjdump
// -sass` print, and needs no GPU. README.md describes the table.

namespace {

struct Instruction {
  std::uint64_t address;
  std::string text;
};

struct Kernel {
  int registers = 0;
  int stack = 0;  // bytes for each thread, spilled registers included
  std::vector<Instruction> code;
};

// The figures of a kernel's hot loops.
struct Figures {
  int loads = 0;   // of 16 bytes
  int stores = 0;  // of 16 bytes
  int instructions = 0;
};

struct Row {
  std::string kernel;
  int elements = 1;  // that one pass through all hot loops handles
  int registers = 0;
  Figures loops;
};

// "tandem::v0::kernels::gpu::walk<4, float>(Arguments)" becomes "walk<4, float>".
std::string short_name(const std::string& mangled) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status),
                                                    std::free);
  std::string name = status == 0 ? text.get() : mangled;
  for (const std::string_view part : {"(anonymous namespace)::", "tandem::v0::kernels::", "tandem::v0::", "gpu::"}) {
    for (auto at = name.find(part); at != std::string::npos; at = name.find(part)) {
      name.erase(at, part.size());
    }
  }
  if (name.starts_with("void ")) {
    name.erase(0, 5);
  }
  int depth = 0;  // of template arguments; the parameters begin outside of all
  for (std::size_t i = 0; i < name.size(); ++i) {
    depth += name[i] == '<' ? 1 : name[i] == '>' ? -1 : 0;
    if (name[i] == '(' && depth == 0) {
      name.resize(i);
    }
  }
  return name;
}

std::map<std::string, Kernel> read_kernels(std::istream& resources, std::istream& code) {
  std::map<std::string, Kernel> kernels;
  static const std::regex function(R"(^\s*Function\s*:?\s+(\S+?):?\s*$)");
  static const std::regex usage(R"(REG:(\d+) STACK:(\d+))");
  static const std::regex instruction(R"(^\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;)");
  std::smatch found;
  Kernel* kernel = nullptr;
  for (std::string line; std::getline(resources, line);) {
    if (std::regex_search(line, found, function)) {
      kernel = &kernels[short_name(found[1])];
    } else if (kernel != nullptr && std::regex_search(line, found, usage)) {
      kernel->registers = std::max(kernel->registers, std::stoi(found[1]));
      kernel->stack = std::max(kernel->stack, std::stoi(found[2]));
    }
  }
  for (std::string line; std::getline(code, line);) {
    if (line.find("Function :") != std::string::npos && std::regex_search(line, found, function)) {
      kernel = &kernels[short_name(found[1])];
      kernel->code.clear();
    } else if (line.find("/*") != std::string::npos && std::regex_search(line, found, instruction)) {
      kernel->code.push_back({std::stoull(found[1], nullptr, 16), found[2]});
    }
  }
  return kernels;
}

bool is_wide(const std::string& text) { return text.find(".128") != std::string::npos; }
bool is_store(const std::string& text) { return text.find("ST") != std::string::npos; }

// The hot loops are those with the most accesses of 16 bytes, among loops that contain no other loop with any.
Figures hot_loops(const Kernel& kernel) {
  struct Loop {
    std::uint64_t begin, end;
    Figures figures;
  };
  static const std::regex target(R"(\bBRA\S*\s.*?0x([0-9a-f]+))");
  // Code after the last exit is executed rarely. Its jumps back into the kernel make no loops.
  const auto is_exit = [](const Instruction& one) { return one.text.find("EXIT") != std::string::npos; };
  const auto end = std::find_if(kernel.code.rbegin(), kernel.code.rend(), is_exit).base();
  std::vector<Loop> loops;
  std::smatch found;
  for (const Instruction& jump : std::span(kernel.code.begin(), end)) {
    if (jump.text.find("BRA") == std::string::npos || !std::regex_search(jump.text, found, target)) {
      continue;
    }
    Loop loop{.begin = std::stoull(found[1], nullptr, 16), .end = jump.address, .figures = {}};
    for (const Instruction& one : kernel.code) {
      if (one.address >= loop.begin && one.address <= loop.end) {
        ++loop.figures.instructions;
        (is_store(one.text) ? loop.figures.stores : loop.figures.loads) += is_wide(one.text) ? 1 : 0;
      }
    }
    if (loop.begin < loop.end && loop.figures.loads + loop.figures.stores > 0) {
      loops.push_back(loop);
    }
  }
  const auto is_inside = [](const Loop& a, const Loop& b) {
    return b.begin <= a.begin && a.end <= b.end && (a.begin != b.begin || a.end != b.end);
  };
  std::erase_if(loops, [&, all = loops](const Loop& outer) {
    return std::ranges::any_of(all, [&](const Loop& inner) { return is_inside(inner, outer); });
  });
  Figures sum;
  for (const Loop& loop : loops) {
    sum.loads += loop.figures.loads;
    sum.stores += loop.figures.stores;
    sum.instructions += loop.figures.instructions;
  }
  return sum;
}

struct Table {
  std::string compiler;
  std::vector<Row> rows;
  std::vector<std::string> excused;  // parts of the names of kernels that may exceed the limits
};

Table read_table(const std::string& path) {
  Table table;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::vector<std::string> cells;
    std::istringstream parts(line);
    for (std::string cell; std::getline(parts, cell, '|');) {
      const auto begin = cell.find_first_not_of(' ');
      cells.push_back(begin == std::string::npos ? "" : cell.substr(begin, cell.find_last_not_of(' ') + 1 - begin));
    }
    if (line.starts_with("nvcc ")) {
      table.compiler = line.substr(5);
    } else if (cells.size() == 2 && cells[0].starts_with("allow ")) {
      table.excused.push_back(cells[0].substr(6));
    } else if (cells.size() == 6 && !line.starts_with("#")) {
      table.rows.push_back({cells[0],
                            std::stoi(cells[1]),
                            std::stoi(cells[2]),
                            {std::stoi(cells[3]), std::stoi(cells[4]), std::stoi(cells[5])}});
    }
  }
  return table;
}

std::string to_text(const Row& row) {
  char text[256];
  std::snprintf(text, sizeof text, "%-60s | %3d | %3d | %2d | %2d | %4d", row.kernel.c_str(), row.elements,
                row.registers, row.loops.loads, row.loops.stores, row.loops.instructions);
  return text;
}

constexpr int kMostRegisters = 128;

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr,
                 "usage: machine_code TABLE COMPILER RESOURCES CODE\n"
                 "Compares kernels with a table. RESOURCES and CODE are files with the output of cuobjdump -res-usage "
                 "and -sass, COMPILER is nvcc's version. Prints the rows as they are now.\n");
    return 2;
  }
  const Table table = read_table(argv[1]);
  std::ifstream resources(argv[3]);
  std::ifstream code(argv[4]);
  if (table.rows.empty() || !resources || !code) {
    std::fprintf(stderr, "machine_code: cannot read %s\n",
                 table.rows.empty() ? argv[1]
                 : !resources       ? argv[3]
                                    : argv[4]);
    return 2;
  }
  const std::map<std::string, Kernel> kernels = read_kernels(resources, code);
  int worse = 0;
  const auto complain = [&](const std::string& kernel, const char* what, int now, int before) {
    std::fprintf(stderr, "%s: %s: %d, the table says %d\n", kernel.c_str(), what, now, before);
    ++worse;
  };
  for (const Row& row : table.rows) {
    const auto found = kernels.find(row.kernel);
    if (found == kernels.end() || found->second.code.empty()) {
      std::fprintf(stderr, "%s: there is no such kernel\n", row.kernel.c_str());
      ++worse;
      continue;
    }
    const Row now{row.kernel, row.elements, found->second.registers, hot_loops(found->second)};
    std::cout << to_text(now) << '\n';
    if (now.registers > row.registers) {
      complain(row.kernel, "registers", now.registers, row.registers);
    }
    if (now.loops.loads < row.loops.loads) {
      complain(row.kernel, "loads of 16 bytes", now.loops.loads, row.loops.loads);
    }
    if (now.loops.stores < row.loops.stores) {
      complain(row.kernel, "stores of 16 bytes", now.loops.stores, row.loops.stores);
    }
    if (now.loops.instructions > row.loops.instructions) {
      complain(row.kernel, "instructions in hot loops", now.loops.instructions, row.loops.instructions);
    }
  }
  for (const auto& [name, kernel] : kernels) {
    const bool excused =
        std::ranges::any_of(table.excused, [&](const auto& part) { return name.find(part) != std::string::npos; });
    if (!excused && kernel.stack > 0) {
      complain(name, "bytes of stack", kernel.stack, 0);
    }
    if (!excused && kernel.registers > kMostRegisters) {
      complain(name, "registers", kernel.registers, kMostRegisters);
    }
  }
  if (worse > 0 && table.compiler != argv[2]) {
    std::fprintf(stderr, "machine_code: notice only, because the table is nvcc %s's and this is nvcc %s\n",
                 table.compiler.c_str(), argv[2]);
    return 0;
  }
  std::fprintf(stderr, "machine_code: %zu kernels, %zu in the table, %d worse\n", kernels.size(), table.rows.size(),
               worse);
  return worse > 0 ? 1 : 0;
}
