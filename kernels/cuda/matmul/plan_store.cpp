#include <tandem/kernels/cuda/matmul/plan_store.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>
#include <tuple>
#include <utility>

#include <tandem/core/check.h>
#include <tandem/core/file.h>

namespace tandem::inline v0::kernels::gpu {

PlanStore& PlanStore::instance() {
  static auto* store = new PlanStore;  // outlives every thread
  return *store;
}

std::optional<PlanRecord> PlanStore::find(const std::string& gpu, const PlanKey& key) const {
  const std::lock_guard lock(mutex_);
  if (const auto found = records_.find(key); found != records_.end()) {
    for (const PlanRecord& record : found->second) {
      if (record.gpu == gpu) {
        return record;
      }
    }
  }
  return std::nullopt;
}

void PlanStore::keep(PlanRecord record, bool replace) {
  std::vector<PlanRecord>& records = records_[record.key];
  const auto old =
      std::find_if(records.begin(), records.end(), [&](const PlanRecord& other) { return other.gpu == record.gpu; });
  if (old == records.end()) {
    records.push_back(std::move(record));
  } else if (replace) {
    *old = std::move(record);
  }
}

void PlanStore::add(PlanRecord record) {
  const std::lock_guard lock(mutex_);
  keep(std::move(record), true);
}

void PlanStore::add_loaded(std::vector<PlanRecord> records) {
  const std::lock_guard lock(mutex_);
  for (PlanRecord& record : records) {
    keep(std::move(record), false);
  }
  loads_.fetch_add(1, std::memory_order_release);
}

std::vector<PlanRecord> PlanStore::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<PlanRecord> all;
  for (const auto& [key, records] : records_) {
    all.insert(all.end(), records.begin(), records.end());
  }
  return all;
}

namespace {

constexpr std::string_view kFirstLine = "tandem matmul plans 3";  // the version of the format
constexpr std::string_view kColumns =
    "m n k lda ldb ldd batch a_step b_step d_step type a_transposed b_transposed fused accumulate tf32 a_align b_align "
    "d_align bias_align bits_align deterministic cublaslt workspace kernels time_us algorithm gpu";
constexpr std::string_view kSeparate = "separate";
constexpr std::array<std::string_view, 13> kFusedNames{
    "nothing",   "bias",   "relu", "relu_bias",   "relu_bits", "relu_bits_bias", "mask",
    "mask_sums", "a_sums", "own",  "own_forward", "own_mask",  "own_a_sums"};
constexpr std::array kTypes{DType::f32, DType::f64, DType::bf16, DType::f16};

constexpr std::size_t kMostBytes = std::size_t{16} << 20;  // of a file
constexpr std::size_t kMostLine = 1024;
constexpr std::size_t kMostName = 256;  // cudaDeviceProp::name
constexpr std::int64_t kMostElements = std::int64_t{1} << 48;
constexpr std::int64_t kMostKernels = 1000;
constexpr double kMostMicroseconds = 1e9;

std::string algorithm_text(const PlanRecord& record) {
  if (record.separate) {
    return std::string(kSeparate);
  }
  std::string text;
  for (const std::uint64_t word : record.algorithm) {
    text += fmt::format("{}{:016x}", text.empty() ? "" : ":", word);
  }
  return text;
}

std::string line_of(const PlanRecord& record) {
  const PlanKey& key = record.key;
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}", key.m,
                     key.n, key.k, key.lda, key.ldb, key.ldd, key.batch, key.a_step, key.b_step, key.d_step,
                     static_cast<DType>(key.type), key.a_transposed, key.b_transposed,
                     kFusedNames[static_cast<std::size_t>(key.fused)], key.accumulate, key.tf32, key.a_align,
                     key.b_align, key.d_align, key.bias_align, key.bits_align, key.deterministic, record.version,
                     record.workspace, record.kernels, record.time_us, algorithm_text(record), record.gpu);
}

// The fields of one line, from the left.
class Fields {
 public:
  Fields(std::string_view line, const std::string& path, std::size_t number)
      : rest_(line), path_(path), number_(number) {}

  std::int64_t integer(const char* name, std::int64_t least, std::int64_t most) {
    const std::int64_t value = number<std::int64_t>(name);
    check<IoError>(value >= least && value <= most, "{}:{}: {} is {}, expected {} to {}", path_, number_, name, value,
                   least, most);
    return value;
  }
  std::int32_t flag(const char* name) { return static_cast<std::int32_t>(integer(name, 0, 1)); }
  std::int32_t alignment(const char* name) {
    const std::int64_t value = integer(name, 1, kMostAlignment);
    check<IoError>(std::has_single_bit(static_cast<std::uint64_t>(value)), "{}:{}: {} is {}, expected a power of two",
                   path_, number_, name, value);
    return static_cast<std::int32_t>(value);
  }
  double time(const char* name) {
    const auto value = number<double>(name);
    check<IoError>(std::isfinite(value) && value > 0 && value <= kMostMicroseconds,
                   "{}:{}: {} is {}, expected a number above 0 and up to {}", path_, number_, name, value,
                   kMostMicroseconds);
    return value;
  }
  // The position of a word among those that are known.
  template <class Words, class Name>
  std::size_t one_of(const char* name, const Words& words, const Name& name_of) {
    const std::string_view text = next(name);
    const auto found = std::find_if(words.begin(), words.end(), [&](auto word) { return name_of(word) == text; });
    if (found == words.end()) {
      bad(name, "a word that is known");
    }
    return static_cast<std::size_t>(found - words.begin());
  }
  void algorithm(const char* name, PlanRecord& record) {
    std::string_view text = next(name);
    record.separate = text == kSeparate;
    if (record.separate) {
      return;
    }
    constexpr std::size_t kDigits = 16;
    bool right = text.size() == record.algorithm.size() * (kDigits + 1) - 1;
    for (std::size_t i = 0; right && i < record.algorithm.size(); ++i) {
      const char* digits = text.data() + i * (kDigits + 1);
      const auto [end, error] = std::from_chars(digits, digits + kDigits, record.algorithm[i], 16);
      right = error == std::errc() && end == digits + kDigits;
    }
    if (!right) {
      bad(name, "8 words of 16 hexadecimal digits, or 'separate'");
    }
  }
  // All that is left.
  std::string name(const char* what) {
    const bool printable = std::all_of(rest_.begin(), rest_.end(), [](char c) { return c >= ' ' && c <= '~'; });
    if (done_ || rest_.empty() || rest_.size() > kMostName || !printable) {
      bad(what, "the name of a GPU");
    }
    return std::string(rest_);
  }

  [[noreturn]] void bad(const char* name, const char* expected) const {
    fail<IoError>("{}:{}: {}: expected {}", path_, number_, name, expected);
  }

 private:
  std::string_view next(const char* name) {
    if (done_) {
      fail<IoError>("{}:{}: the line ends before {}", path_, number_, name);
    }
    const std::size_t end = rest_.find(' ');
    const std::string_view field = rest_.substr(0, end);
    done_ = end == std::string_view::npos;
    rest_ = done_ ? std::string_view() : rest_.substr(end + 1);
    return field;
  }
  template <class T>
  T number(const char* name) {
    const std::string_view text = next(name);
    T value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) {
      bad(name, "a number");
    }
    return value;
  }

  std::string_view rest_;
  const std::string& path_;
  std::size_t number_;
  bool done_ = false;
};

PlanRecord parse_line(std::string_view line, const std::string& path, std::size_t number) {
  Fields fields(line, path, number);
  PlanRecord record;
  PlanKey& key = record.key;
  key.m = fields.integer("m", 1, kMostElements);
  key.n = fields.integer("n", 1, kMostElements);
  key.k = fields.integer("k", 1, kMostElements);
  key.lda = fields.integer("lda", 1, kMostElements);
  key.ldb = fields.integer("ldb", 1, kMostElements);
  key.ldd = fields.integer("ldd", 1, kMostElements);
  key.batch = fields.integer("batch", 1, INT32_MAX);
  key.a_step = fields.integer("a_step", 0, kMostElements);
  key.b_step = fields.integer("b_step", 0, kMostElements);
  key.d_step = fields.integer("d_step", 0, kMostElements);
  key.type = static_cast<std::int32_t>(kTypes[fields.one_of("type", kTypes, [](DType type) { return name(type); })]);
  key.a_transposed = fields.flag("a_transposed");
  key.b_transposed = fields.flag("b_transposed");
  key.fused =
      static_cast<std::int32_t>(fields.one_of("fused", kFusedNames, [](std::string_view word) { return word; }));
  key.accumulate = fields.flag("accumulate");
  key.tf32 = fields.flag("tf32");
  key.a_align = fields.alignment("a_align");
  key.b_align = fields.alignment("b_align");
  key.d_align = fields.alignment("d_align");
  key.bias_align = fields.alignment("bias_align");
  key.bits_align = fields.alignment("bits_align");
  key.deterministic = fields.flag("deterministic");
  record.version = static_cast<std::size_t>(fields.integer("cublaslt", 1, INT64_MAX));
  record.workspace = static_cast<std::size_t>(fields.integer("workspace", 0, std::int64_t{kMostWorkspace}));
  record.kernels = static_cast<int>(fields.integer("kernels", 1, kMostKernels));
  record.time_us = fields.time("time_us");
  fields.algorithm("algorithm", record);
  record.gpu = fields.name("gpu");
  if (record.separate && (fused_of(key) == Fused::nothing || record.workspace != 0)) {
    fields.bad("algorithm", "one: nothing follows this product, or there is workspace for it");
  }
  // Numbers have one way to be written.
  check<IoError>(line_of(record) == line, "{}:{}: this line was not written by save_matmul_plans()", path, number);
  return record;
}

// Returns the fields that no two records may share.
std::string identity(const PlanRecord& record) {
  return fmt::format("{} {} ", record.version, record.gpu)
      .append(reinterpret_cast<const char*>(&record.key), sizeof(record.key));
}

}  // namespace

std::string write_plans(std::span<const PlanRecord> records) {
  std::vector<const PlanRecord*> ordered;
  for (const PlanRecord& record : records) {
    ordered.push_back(&record);
  }
  const auto order = [](const PlanRecord* record) {
    const PlanKey& key = record->key;
    return std::tuple(key.m, key.n, key.k, line_of(*record));
  };
  std::sort(ordered.begin(), ordered.end(),
            [&](const PlanRecord* x, const PlanRecord* y) { return order(x) < order(y); });
  std::string text = fmt::format("{}\n{}\n", fmt::string_view(kFirstLine), fmt::string_view(kColumns));
  for (const PlanRecord* record : ordered) {
    text += line_of(*record) + "\n";
  }
  return text;
}

std::vector<PlanRecord> parse_plans(std::string_view text, const std::string& path) {
  check<IoError>(text.size() <= kMostBytes, "{}: more than {} bytes; this is no file of matmul plans", path,
                 kMostBytes);
  std::vector<PlanRecord> records;
  std::set<std::string> seen;
  std::size_t number = 0;
  for (; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    check<IoError>(end != std::string_view::npos, "{}:{}: the line has no end; the file is truncated", path,
                   number + 1);
    check<IoError>(end <= kMostLine, "{}:{}: more than {} characters", path, number + 1, kMostLine);
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (number < 2) {
      const std::string_view expected = number == 0 ? kFirstLine : kColumns;
      check<IoError>(line == expected, "{}:{}: expected '{}'; this is no file of matmul plans, or of another version",
                     path, number + 1, std::string(expected));
      continue;
    }
    records.push_back(parse_line(line, path, number + 1));
    check<IoError>(seen.insert(identity(records.back())).second, "{}:{}: an earlier line is about the same product",
                   path, number + 1);
  }
  check<IoError>(number >= 2, "{}:{}: the file ends before its header does", path, number + 1);
  return records;
}

std::vector<PlanRecord> read_plan_file(const std::string& path) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  check<IoError>(!std::filesystem::exists(status) || std::filesystem::is_regular_file(status),
                 "cannot read '{}': this is a directory, a device or a pipe, expected a file", path);
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    core::fail_io("open", path, errno);
  }
  std::string text(kMostBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) {
    core::fail_io("read", path, errno);
  }
  text.resize(static_cast<std::size_t>(file.gcount()));
  return parse_plans(text, path);
}

}  // namespace tandem::inline v0::kernels::gpu
