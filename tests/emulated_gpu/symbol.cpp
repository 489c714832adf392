#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <string>

#include <fmt/format.h>

#include "runtime.h"

// Names of kernels. dladdr() does not find names of an executable or of an unnamed namespace, so read the file.

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

}  // namespace

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
