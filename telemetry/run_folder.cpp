#include <tandem/telemetry/run_folder.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <tandem/core/check.h>
#include <tandem/core/file.h>
#include <tandem/telemetry/environment.h>
#include <tandem/telemetry/metric_fields.h>
#include <tandem/telemetry/summary_writer.h>

namespace tandem::inline v0::telemetry {

namespace fs = std::filesystem;

namespace {

constexpr const char* kJobFile = ".job";

void create_folders(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) {
    core::fail_io("create the folder", path, error.value());
  }
}

// If two runs find the folder empty, only one gets the lock. It holds until that run ends.
core::Descriptor lock_folder(const std::string& path) {
  core::Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0) {
    core::fail_io("open the folder", path, errno);
  }
  if (::flock(folder.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {  // else: this file system has no locks
    fail<IoError>("'{}': cannot use it as the run folder: another run does; give another path", path);
  }
  return folder;
}

// The job that has made this folder.
std::string job_of(const fs::path& folder) {
  return core::read_small_file((folder / kJobFile).string()).value_or(std::string());
}

// The folder that this job made before it was restarted, or an empty text.
std::string made_before(const RunFolderOptions& options) {
  std::error_code error;
  for (fs::directory_iterator entry(options.parent, error), end; !error && entry != end; entry.increment(error)) {
    struct stat status{};
    const bool is_ours =
        ::lstat(entry->path().c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::geteuid();
    if (is_ours && entry->path().filename().string().starts_with(options.program + "-") &&
        job_of(entry->path()) == options.job) {
      return options.parent + "/" + entry->path().filename().string();
    }
  }
  return {};
}

void check_empty(const std::string& path) {
  std::error_code error;
  bool empty = true;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
    // A process that was killed may have left a temporary file of ours.
    empty = empty && entry->path().filename().string().find(".tmp-") != std::string::npos;
  }
  if (error) {
    core::fail_io("read the folder", path, error.value());
  }
  check<IoError>(empty,
                 "'{}': cannot use it as the run folder: it exists and is not empty; give another path or "
                 "remove it first",
                 path);
}

std::string create_new(const std::string& parent, const std::string& program) {
  check<ConfigError>(!program.empty() && program.find('/') == std::string::npos,
                     "RunFolder: expected a program name without '/', or a path; got program '{}' and no path",
                     program);
  create_folders(parent);
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  char stamp[32];
  std::strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &local);
  const std::string base = fmt::format("{}/{}-{}", parent, program, stamp);
  for (int copy = 1;; ++copy) {
    std::string path = copy == 1 ? base : fmt::format("{}-{}", base, copy);
    std::error_code error;
    // Creation itself tests whether the name is free. A separate check would let two runs take the same name.
    const bool created = fs::create_directory(path, error);
    if (error) {
      core::fail_io("create the folder", path, error.value());
    }
    if (created) {
      return path;
    }
  }
}

}  // namespace

std::string to_json(const Fields& fields, int indent) {
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  for (const Field& field : fields) {
    std::visit([&](const auto& value) { object[field.name] = value; }, field.value);
  }
  // Neither NaN nor bad UTF-8 in a metric may end a run: dump() writes NaN as null, and `replace` handles bad UTF-8.
  return object.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

namespace {

Fields fields_of(const nlohmann::ordered_json& object, const std::string& path) {
  check<IoError>(object.is_object(), "'{}': expected one JSON object", path);
  Fields fields;
  for (const auto& [name, value] : object.items()) {
    const auto are_all = [&](auto is_one) {
      return value.is_array() && std::all_of(value.begin(), value.end(), is_one);
    };
    if (value.is_boolean()) {
      fields.push_back({name, value.template get<bool>()});
    } else if (value.is_number_integer()) {
      fields.push_back({name, value.template get<std::int64_t>()});
    } else if (value.is_number()) {
      fields.push_back({name, value.template get<double>()});
    } else if (value.is_null()) {
      fields.push_back({name, std::numeric_limits<double>::quiet_NaN()});
    } else if (value.is_string()) {
      fields.push_back({name, value.template get<std::string>()});
    } else if (are_all([](const auto& item) { return item.is_string(); })) {
      fields.push_back({name, value.template get<std::vector<std::string>>()});
    } else if (are_all([](const auto& item) { return item.is_number(); })) {
      fields.push_back({name, value.template get<std::vector<double>>()});
    } else {
      fail<IoError>("'{}': '{}' is neither a number, a text, true, false, nor a list of numbers or texts", path, name);
    }
  }
  return fields;
}

std::ifstream open_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file.is_open()) {
    core::fail_io("read", path, errno);
  }
  return file;
}

}  // namespace

Fields read_json(const std::string& path) {
  std::ifstream file = open_file(path);
  return fields_of(nlohmann::ordered_json::parse(file, nullptr, false), path);
}

std::vector<Fields> read_json_lines(const std::string& path) {
  std::ifstream file = open_file(path);
  std::vector<Fields> lines;
  for (std::string line; std::getline(file, line) && !file.eof();) {
    lines.push_back(
        fields_of(nlohmann::ordered_json::parse(line, nullptr, false), fmt::format("{}:{}", path, lines.size() + 1)));
  }
  return lines;
}

struct RunFolder::Impl {
  std::string path;
  core::Descriptor lock{};  // until this process ends, or the RunFolder does
  core::Descriptor metrics{};
  off_t metrics_bytes = 0;
  std::optional<std::int64_t> known_lines{};  // of metrics.jsonl, once counted
  std::optional<SummaryWriter> events{};      // once there are metrics
  bool goes_on = false;                       // from lines that are there, so that later events are void

  explicit Impl(std::string p) : path(std::move(p)) {}

  std::string metrics_path() const { return path + "/metrics.jsonl"; }

  std::string read_metrics() const {
    std::ifstream file(metrics_path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::int64_t metrics_lines() {
    if (!known_lines) {
      const std::string text = read_metrics();
      known_lines = std::count(text.begin(), text.end(), '\n');
    }
    return *known_lines;
  }

  void append(std::string_view lines) {
    if (lines.empty()) {
      return;
    }
    if (metrics.get() < 0) {
      metrics = core::open_regular("open", metrics_path(), O_WRONLY | O_CREAT | O_APPEND, 0666);
    }
    if (!core::write_all(metrics.get(), lines)) {
      const int error = errno;
      // A full disk may take half a line. Truncating needs no space. If it fails too, report the first error.
      [[maybe_unused]] const int cut = ::ftruncate(metrics.get(), metrics_bytes);
      core::fail_io("write", metrics_path(), error, lines.size());
    }
    metrics_bytes += static_cast<off_t>(lines.size());
    if (known_lines) {
      *known_lines += std::count(lines.begin(), lines.end(), '\n');
    }
  }

  void add_events(const Fields& fields) {
    const std::string axis = axis_of(fields);
    std::int64_t step = 0;
    if (axis.empty()) {
      step = metrics_lines();
    }
    for (const Field& field : fields) {
      step = field.name == axis ? static_cast<std::int64_t>(*number_in(field.value)) : step;
    }
    if (!events) {
      events.emplace(path);
    }
    if (std::exchange(goes_on, false)) {
      events->restart_at(step);
    }
    for (const Field& field : fields) {
      if (const std::optional<double> number = number_in(field.value); number && field.name != axis) {
        events->add_scalar(field.name, *number, step);
      }
    }
  }

  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    if (lock.get() >= 0) {
      ::flock(lock.get(), LOCK_UN);  // explicit, because a child process may have the descriptor too
    }
  }
};

RunFolder::RunFolder(const RunFolderOptions& options) {
  std::string path = options.path.empty() && !options.job.empty() ? made_before(options) : options.path;
  const bool is_given = !path.empty();
  if (is_given) {
    create_folders(path);
  } else {
    path = create_new(options.parent, options.program);
  }
  impl_ = std::make_unique<Impl>(path);
  impl_->lock = lock_folder(path);
  if (is_given && !options.reuse && (options.job.empty() || job_of(path) != options.job)) {
    check_empty(path);
  }
  if (!options.job.empty()) {
    core::replace_file(file(kJobFile), {options.job});
  }
  std::error_code error;
  const auto bytes = fs::file_size(file("metrics.jsonl"), error);
  impl_->metrics_bytes = error ? 0 : static_cast<off_t>(bytes);
  impl_->goes_on = impl_->metrics_bytes > 0;
}
RunFolder::~RunFolder() = default;
RunFolder::RunFolder(RunFolder&&) noexcept = default;
RunFolder& RunFolder::operator=(RunFolder&&) noexcept = default;

const std::string& RunFolder::path() const noexcept { return impl_->path; }

std::string RunFolder::file(std::string_view name) const {
  check<ConfigError>(!name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos,
                     "RunFolder '{}': expected a plain file name, got '{}'", impl_->path, name);
  return fmt::format("{}/{}", impl_->path, name);
}

void RunFolder::write_config(const Fields& fields) {
  write_file("config.json", to_json(fields, 2) + "\n");
  write_file("environment.json", to_json(environment(), 2) + "\n");
}

std::int64_t RunFolder::metrics_bytes() const { return impl_->metrics_bytes; }

void RunFolder::cut_metrics(std::int64_t bytes) {
  const std::string path = file("metrics.jsonl");
  if (bytes >= impl_->metrics_bytes) {
    return;
  }
  const core::Descriptor metrics = core::open_regular("shorten", path, O_WRONLY, 0666);
  if (::ftruncate(metrics.get(), bytes) != 0) {
    core::fail_io("shorten", path, errno);
  }
  impl_->metrics_bytes = bytes;
  impl_->known_lines.reset();
  impl_->goes_on = true;
}

std::int64_t RunFolder::metrics_lines() const { return impl_->metrics_lines(); }

void RunFolder::set_metrics_lines(std::int64_t lines, std::string_view last) {
  const std::string text = impl_->read_metrics();
  std::size_t end = 0;
  std::int64_t there = 0;
  for (; there < lines && text.find('\n', end) != std::string::npos; ++there) {
    end = text.find('\n', end) + 1;
  }
  cut_metrics(static_cast<std::int64_t>(end));
  std::int64_t extra = std::count(last.begin(), last.end(), '\n') - (lines - there);
  for (; extra > 0; --extra) {
    last.remove_prefix(last.find('\n') + 1);
  }
  impl_->append(last);
}

void RunFolder::append_metrics(const Fields& fields) {
  impl_->append(to_json(fields) + "\n");
  impl_->add_events(fields);
}

void RunFolder::write_file(std::string_view name, std::string_view bytes) { core::replace_file(file(name), {bytes}); }

}  // namespace tandem::inline v0::telemetry
