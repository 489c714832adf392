#include <tandem/checkpoint/generations.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string_view>
#include <thread>

#include <tandem/checkpoint/stored_tensors.h>
#include <tandem/core/check.h>
#include <tandem/core/failpoint.h>
#include <tandem/core/file.h>
#include <tandem/parallel/rendezvous/meet.h>

namespace tandem::inline v0::checkpoint {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kSuffix = ".safetensors";
constexpr std::string_view kTemporary = ".tmp-";  // in the names of files that a killed process left

constexpr std::chrono::minutes kShardTimeout{5};
constexpr std::string_view kFailed = ".failed";  // after the name of a shard that could not be written
constexpr std::chrono::milliseconds kShardLook{5};

std::string shard_in(const std::string& folder, std::int64_t step, int rank) {
  return fmt::format("{}/{}{:010}.shard-{}{}", folder, kPrefix, step, rank, kSuffix);
}

// The number of files that a checkpoint with these texts has.
int count_shards(const Metadata& metadata) {
  const std::string text = text_of(metadata, kShards);
  int count = 1;
  std::from_chars(text.data(), text.data() + text.size(), count);
  return count;
}

// Whether the shard is there and of this session.
bool has_shard(const std::string& path, const std::string& session) {
  try {
    std::error_code ignored;
    return fs::exists(path, ignored) && text_of(SafetensorsFile(path).metadata(), kSession) == session;
  } catch (const IoError&) {
    return false;
  }
}

std::optional<std::int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) {
    return std::nullopt;
  }
  const std::string_view digits = name.substr(kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size());
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  return error == std::errc() && end == digits.data() + digits.size() && step >= 0 ? std::optional(step) : std::nullopt;
}

// The step of "step-0000000500.shard-1.safetensors", and of what stands for a shard that could not be written.
std::optional<std::int64_t> step_of_shard(std::string_view name) {
  const std::size_t end = name.find(".shard-");
  return end == std::string_view::npos ? std::nullopt
                                       : step_of(std::string(name.substr(0, end)) + std::string(kSuffix));
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    core::fail_io("read the folder", folder, error.value());
  }
  return names;
}

}  // namespace

Generations::Generations(std::string folder, std::string owner, core::FileOps& ops)
    : folder_(std::move(folder)), owner_(std::move(owner)), ops_(&ops) {}

bool Generations::is_used(const std::string& folder) {
  std::error_code ignored;
  const std::vector<std::string> names = names_in(folder);
  const bool is_ours = std::all_of(names.begin(), names.end(), [](const std::string& name) {
    return name == "owner" || step_of(name) || name.find(kTemporary) != std::string::npos;
  });
  return fs::is_directory(folder, ignored) && (is_ours || fs::exists(folder + "/owner", ignored));
}

Generations::Generations(std::string folder, core::FileOps& ops)
    : folder_(std::move(folder)), owner_(parallel::random_name()), ops_(&ops) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) {
    core::fail_io("create the folder", folder_, error.value());
  }
  for (const std::string& name : names_in(folder_)) {
    if (name.find(kTemporary) != std::string::npos) {
      ops_->unlink((folder_ + "/" + name).c_str());
    }
  }
  core::replace_file(folder_ + "/owner", {owner_});
}

std::string Generations::path_in(const std::string& folder, std::int64_t step) {
  return fmt::format("{}/{}{:010}{}", folder, kPrefix, step, kSuffix);
}

std::vector<std::int64_t> Generations::steps_in(const std::string& folder) {
  std::vector<std::int64_t> steps;
  for (const std::string& name : names_in(folder)) {
    if (const auto step = step_of(name); step && path_in(folder, *step).ends_with("/" + name)) {
      steps.push_back(*step);
    }
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

void Generations::for_each_file(
    const std::string& folder, std::int64_t step,
    const std::function<void(const std::string& path, const SafetensorsFile& file)>& visit) {
  const std::string path = path_in(folder, step);
  const SafetensorsFile file(path);
  check<IoError>(file.has_hashes(), "'{}': this is no checkpoint of a run: it has no hashes", path);
  visit(path, file);
  const int count = count_shards(file.metadata());
  for (int rank = 1; rank < count; ++rank) {
    const std::string shard_path = shard_in(folder, step, rank);
    const SafetensorsFile shard(shard_path);
    check<IoError>(text_of(shard.metadata(), kSession) == text_of(file.metadata(), kSession),
                   "'{}': this is not the shard that was saved with '{}'", shard_path, path);
    visit(shard_path, shard);
  }
}

Generation Generations::newest_whole(const std::string& folder,
                                     const std::function<void(const std::string& problem)>& on_damage) {
  std::string problems;
  for (const std::int64_t step : steps_in(folder)) {
    try {
      Generation whole;
      for_each_file(folder, step, [&](const std::string& path, const SafetensorsFile& file) {
        if (whole.path.empty()) {
          whole = {file.read_all(), file.metadata(), path};
          return;
        }
        for (const auto& [name, value] : file.read_all()) {
          whole.state.set(name, value);
        }
      });
      return whole;
    } catch (const IoError& error) {
      on_damage(error.what());
      problems = problems.empty() ? error.what() : problems;
    }
  }
  check<IoError>(problems.empty(),
                 "'{}': no checkpoint of this run is whole, and beginning anew here would hide that; give another "
                 "folder. The newest: {} [TDM-E509]",
                 folder, problems);
  return {};
}

void Generations::check_owner() const {
  const std::string path = folder_ + "/owner";
  const std::optional<std::string> owner = core::read_small_file(path);
  check<IoError>(owner.has_value(), "cannot read '{}', which says who may write here; nothing was written", path);
  check<ConfigError>(*owner == owner_,
                     "'{}': another process has taken this run over; this one has stopped writing checkpoints",
                     folder_);
}

void Generations::wait_for_shards(std::int64_t step, const Metadata& metadata) const {
  const std::string session = text_of(metadata, kSession);
  const auto deadline = std::chrono::steady_clock::now() + kShardTimeout;
  for (int rank = 1; rank < count_shards(metadata); ++rank) {
    const std::string path = shard_in(folder_, step, rank);
    while (!has_shard(path, session)) {
      check<IoError>(core::read_small_file(path + std::string(kFailed)) != session,
                     "'{}': rank {} could not write its part; its own error says why", path, rank);
      check<IoError>(std::chrono::steady_clock::now() < deadline,
                     "'{}': rank {} has not written its part within {} minutes; do all ranks see this folder?", path,
                     rank, kShardTimeout.count());
      std::this_thread::sleep_for(kShardLook);
    }
  }
}

void Generations::write(std::int64_t step, const StateDict& state, const Metadata& metadata, int keep) {
  check_owner();
  wait_for_shards(step, metadata);
  check_owner();
  write_tensors(state, path_in(folder_, step), metadata, *ops_);
  core::failpoint("save.renamed");
  // A damaged checkpoint of a later step, which this run has passed over, is not counted.
  std::vector<std::int64_t> older = steps_in(folder_);
  std::erase_if(older, [&](std::int64_t other) { return other > step; });
  older.erase(older.begin(), older.begin() + std::min(keep, static_cast<int>(older.size())));
  for (const std::int64_t old : older) {
    const std::string path = path_in(folder_, old);
    if (ops_->unlink(path.c_str()) != 0 && errno != ENOENT) {
      core::fail_io("remove the old checkpoint", path, errno);
    }
  }
  // Shards go with their checkpoint, and so do those whose checkpoint was never finished.
  const std::vector<std::int64_t> left = steps_in(folder_);
  for (const std::string& name : names_in(folder_)) {
    const std::optional<std::int64_t> of = step_of_shard(name);
    if (of && *of < step && std::find(left.begin(), left.end(), *of) == left.end()) {
      ops_->unlink((folder_ + "/" + name).c_str());
    }
  }
  core::failpoint("save.finished");
}

void Generations::write_shard(std::int64_t step, int rank, const StateDict& state, const std::string& session) {
  check_owner();
  write_tensors(state, shard_in(folder_, step, rank), {{std::string(kSession), session}}, *ops_);
}

void Generations::give_up_shard(std::int64_t step, int rank, const std::string& session) const {
  core::replace_file(shard_in(folder_, step, rank) + std::string(kFailed), {session});
}

}  // namespace tandem::inline v0::checkpoint
