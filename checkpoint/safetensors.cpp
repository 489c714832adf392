#include <tandem/checkpoint/safetensors.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <mutex>
#include <numeric>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tandem/checkpoint/module_tensors.h>
#include <tandem/checkpoint/safetensors_header.h>
#include <tandem/checkpoint/stored_tensors.h>
#include <tandem/core/check.h>
#include <tandem/core/file.h>
#include <tandem/core/system_limits.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0 {

namespace {

namespace cp = checkpoint;

core::Descriptor open_for_reading(const std::string& path) {
  core::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) {
    const int error = errno;
    std::error_code ignored;
    fail<IoError>("cannot open '{}': {}{} [TDM-E505]", path, core::system_message(error),
                  path.starts_with('/') || error != ENOENT
                      ? ""
                      : fmt::format(" (current directory: {})", std::filesystem::current_path(ignored).string()));
  }
  return file;
}

std::uint64_t size_of(const core::Descriptor& file, const std::string& path) {
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) {
    core::fail_io("read", path, errno);
  }
  check<IoError>(S_ISREG(status.st_mode), "cannot read '{}': this is {}, expected a file", path,
                 S_ISDIR(status.st_mode) ? "a folder" : "a device or a pipe");
  return static_cast<std::uint64_t>(status.st_size);
}

void read_at(const core::Descriptor& file, const std::string& path, std::uint64_t offset, std::span<char> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::pread(file.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno != EINTR) {
      core::fail_io("read", path, errno);
    }
    check<IoError>(count != 0,
                   "safetensors '{}': the file ends at byte {}: it was cut off while it was read [TDM-E510]", path,
                   offset);
    if (count > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(count));
      offset += static_cast<std::uint64_t>(count);
    }
  }
}

}  // namespace

void save(const StateDict& state, const std::string& path, const SaveOptions& options) {
  cp::write_tensors(state, path, options.metadata);
}

void save(const nn::ModuleRef& module, const std::string& path, const SaveOptions& options) {
  save(cp::state_of(module), path, options);
}

StateDict load(const std::string& path) { return SafetensorsFile(path).read_all(); }

nn::LoadReport load(nn::ModuleRef module, const std::string& path, bool strict) {
  return cp::load_into(module, load(path), strict);
}

struct SafetensorsFile::Impl {
  explicit Impl(const std::string& name)
      : path(name),
        file(open_for_reading(path)),
        read([this](std::uint64_t offset, std::span<char> bytes) { read_at(file, path, offset, bytes); }),
        header(path, size_of(file, path), read),
        hashed(cp::has_hashes(header)) {
    std::copy_if(header.metadata().begin(), header.metadata().end(), std::back_inserter(metadata),
                 [](const auto& pair) { return !pair.first.starts_with(cp::kOwnMetadata); });
  }

  void check_seal() {
    std::call_once(seal, [&] { cp::check_seal(header, path); });
  }

  std::string path;
  core::Descriptor file;
  cp::SafetensorsHeader::Read read;
  cp::SafetensorsHeader header;
  bool hashed;
  cp::Metadata metadata{};
  std::once_flag seal{};
};

SafetensorsFile::SafetensorsFile(const std::string& path) : impl_(std::make_unique<Impl>(path)) {}
SafetensorsFile::~SafetensorsFile() = default;
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;

std::vector<SafetensorsFile::Info> SafetensorsFile::tensors() const {
  std::vector<Info> infos;
  for (std::size_t place = 0; place < impl_->header.size(); ++place) {
    const cp::SafetensorsHeader::Entry& entry = impl_->header.entry(place);
    infos.push_back({entry.name, std::string(entry.type->name), impl_->header.shape(entry), entry.end - entry.begin,
                     cp::stored_hash(impl_->header, place)});
  }
  return infos;
}

const std::vector<std::pair<std::string, std::string>>& SafetensorsFile::metadata() const noexcept {
  return impl_->metadata;
}

bool SafetensorsFile::has_hashes() const noexcept { return impl_->hashed; }

Tensor SafetensorsFile::read(std::string_view name) const {
  const std::optional<std::size_t> place = impl_->header.find(name);
  check<ConfigError>(place.has_value(), "safetensors '{}': there is no tensor '{}'", impl_->path, name);
  impl_->check_seal();
  return cp::read_tensors(impl_->header, {&*place, 1}, impl_->read, impl_->path, impl_->hashed).begin()->second;
}

StateDict SafetensorsFile::read_all(bool verify) const {
  if (verify) {
    impl_->check_seal();
  }
  std::vector<std::size_t> places(impl_->header.size());
  std::iota(places.begin(), places.end(), std::size_t{0});
  return cp::read_tensors(impl_->header, places, impl_->read, impl_->path, verify && impl_->hashed);
}

StateDict SafetensorsFile::map_all() const {
  const cp::SafetensorsHeader& header = impl_->header;
  const std::uint64_t size = size_of(impl_->file, impl_->path);
  const std::uint64_t end = header.size() == 0 ? 0 : header.entry(header.size() - 1).end;
  check<IoError>(size >= header.data_offset() + end, "safetensors '{}': it was cut off while it was open [TDM-E510]",
                 impl_->path);
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, impl_->file.get(), 0);
  if (memory == MAP_FAILED) {
    core::fail_io("map", impl_->path, errno);
  }
  const std::shared_ptr<char> pages(static_cast<char*>(memory), [size](char* begin) { ::munmap(begin, size); });
  std::vector<StateDict::Entry> entries;
  for (std::size_t place = 0; place < header.size(); ++place) {
    const cp::SafetensorsHeader::Entry& entry = header.entry(place);
    char* data = pages.get() + header.data_offset() + entry.begin;
    const std::optional<DType> dtype = entry.type->dtype;
    const bool fits = dtype && &cp::stored_type(*dtype) == entry.type && *dtype != DType::boolean &&
                      entry.end > entry.begin && reinterpret_cast<std::uintptr_t>(data) % item_size(*dtype) == 0;
    if (fits) {
      const Shape shape = header.shape(entry);
      entries.emplace_back(entry.name, detail::from_foreign("map_all", data, *dtype, shape, contiguous_strides(shape),
                                                            [pages](void*) {}, {.device = "cpu"}));
    } else {
      entries.emplace_back(entry.name,
                           cp::read_tensors(header, {&place, 1}, impl_->read, impl_->path, false).begin()->second);
    }
  }
  return StateDict(std::move(entries));
}

void SafetensorsFile::verify() const {
  impl_->check_seal();
  if (impl_->hashed) {
    cp::verify_tensors(impl_->header, impl_->read, impl_->path);
  }
}

}  // namespace tandem::inline v0
