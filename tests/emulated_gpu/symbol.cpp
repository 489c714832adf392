#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "runtime.h"

// Names of kernels, and lines of code. dladdr() does not find names of an executable or of an unnamed namespace, so
// read the file.

namespace emulated_gpu::detail {

namespace {

struct Object {
  const void* address;  // any address within it
  std::string path;
  ElfW(Addr) base = 0;
};

int find_object(dl_phdr_info* info, size_t, void* data) {
  Object& object = *static_cast<Object*>(data);
  const auto address = reinterpret_cast<ElfW(Addr)>(object.address);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& segment = info->dlpi_phdr[i];
    const ElfW(Addr) begin = info->dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_LOAD && address >= begin && address - begin < segment.p_memsz) {
      object.base = info->dlpi_addr;
      object.path = info->dlpi_name == nullptr || *info->dlpi_name == '\0' ? "/proc/self/exe" : info->dlpi_name;
      return 1;
    }
  }
  return 0;
}

// The name for `value` in the symbol table of an ELF file, or empty.
std::string look_up(const char* file, ElfW(Addr) value) {
  const auto& header = *reinterpret_cast<const ElfW(Ehdr)*>(file);
  const auto* sections = reinterpret_cast<const ElfW(Shdr)*>(file + header.e_shoff);
  for (int i = 0; i < header.e_shnum; ++i) {
    const auto& section = sections[i];
    if (section.sh_type != SHT_SYMTAB && section.sh_type != SHT_DYNSYM) {
      continue;
    }
    const auto* symbols = reinterpret_cast<const ElfW(Sym)*>(file + section.sh_offset);
    for (std::size_t s = 0; s < section.sh_size / sizeof(ElfW(Sym)); ++s) {
      if (symbols[s].st_value == value && (symbols[s].st_info & 0xF) == STT_FUNC) {
        return file + sections[section.sh_link].sh_offset + symbols[s].st_name;
      }
    }
  }
  return {};
}

std::string find_symbol(const void* function) {
  Object object{function, {}};
  if (dl_iterate_phdr(&find_object, &object) == 0) {
    return {};
  }
  const int descriptor = open(object.path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status{};
  if (descriptor < 0 || fstat(descriptor, &status) != 0) {
    return {};
  }
  const auto size = static_cast<std::size_t>(status.st_size);
  void* file = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  close(descriptor);
  if (file == MAP_FAILED) {
    return {};
  }
  std::string name = look_up(static_cast<const char*>(file), reinterpret_cast<ElfW(Addr)>(function) - object.base);
  munmap(file, size);
  return name;
}

// The lines of code that addr2line of binutils finds for an offset into a program, from the innermost inlined function
// outwards, or empty.
std::string look_up_lines(const std::string& path, ElfW(Addr) offset) {
  constexpr int kLines = 10;
  const std::string command = fmt::format("addr2line -i -e '{}' {:#x} 2>/dev/null", path, offset);
  FILE* output = popen(command.c_str(), "r");
  if (output == nullptr) {
    return {};
  }
  std::string text;
  std::array<char, 4096> line{};
  for (int i = 0; i < kLines && std::fgets(line.data(), line.size(), output) != nullptr; ++i) {
    const std::string_view found(line.data(), std::strcspn(line.data(), "\n"));
    if (found.starts_with("??")) {
      break;
    }
    if (found.find("/c++/") != std::string_view::npos) {  // the standard library
      continue;
    }
    text += fmt::format("{}{}", text.empty() ? "" : ", inlined at ",
                        std::filesystem::path(found).lexically_normal().string());
  }
  pclose(output);
  return text;
}

}  // namespace

std::string source_of(const void* code) {
  Object object{code, {}};
  if (dl_iterate_phdr(&find_object, &object) == 0) {
    return fmt::format("{}", code);
  }
  std::array<char, 4096> path{};
  if (readlink(object.path.c_str(), path.data(), path.size() - 1) > 0) {
    object.path = path.data();
  }
  // A return address belongs to the instruction before it.
  const ElfW(Addr) offset = reinterpret_cast<ElfW(Addr)>(code) - object.base - 1;
  const std::string lines = look_up_lines(object.path, offset);
  return lines.empty() ? fmt::format("{}+{:#x}", object.path, offset) : lines;
}

const std::string& symbol_name(const void* function) {
  static std::map<const void*, std::string> known;  // guarded by the runtime's mutex, too
  const auto [place, is_new] = known.try_emplace(function);
  if (is_new) {
    const std::string symbol = find_symbol(function);
    char* readable = symbol.empty() ? nullptr : abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, nullptr);
    place->second = readable != nullptr ? readable : symbol.empty() ? fmt::format("at {}", function) : symbol;
    std::free(readable);
  }
  return place->second;
}

}  // namespace emulated_gpu::detail
