#include <tandem/checkpoint/run.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <string_view>

#include <tandem/autograd/anomaly.h>
#include <tandem/checkpoint/generations.h>
#include <tandem/checkpoint/module_tensors.h>
#include <tandem/checkpoint/rank_link.h>
#include <tandem/checkpoint/run_writer.h>
#include <tandem/checkpoint/signals.h>
#include <tandem/core/check.h>
#include <tandem/core/failpoint.h>
#include <tandem/core/file.h>
#include <tandem/core/grad_mode.h>
#include <tandem/core/progress_page.h>
#include <tandem/core/warning.h>
#include <tandem/parallel/rendezvous/job_token.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/generator.h>

// A checkpoint has the tensors of each part under "<part>.<name>". Parts that each rank has for itself, and the random
// numbers, are under "rank.<rank>.<part>.<name>". The step, the epoch and the like are texts.
//
// All ranks must save, and stop, after the same step. They agree on that in look(), about ten times a second: each time
// they also agree on the number of steps until the next time, so that no step has to ask.

namespace tandem::inline v0::checkpoint {

namespace {

using Clock = std::chrono::steady_clock;

constexpr double kLookSeconds = 0.1;
constexpr std::int64_t kMostStepsBetweenLooks = 1000;
constexpr std::string_view kRandom = "random";

// A copy that the training does not change.
Tensor copied(const Tensor& tensor) {
  return tensor.device().type == DeviceType::cpu ? tensor.detach().clone() : tensor.detach().to("cpu");
}

std::string rank_prefix(int rank) { return fmt::format("rank.{}.", rank); }

// The tensors whose names begin with `prefix`, without it.
StateDict below(const StateDict& state, std::string_view prefix) {
  std::vector<StateDict::Entry> entries;
  for (const auto& [name, value] : state) {
    if (name.starts_with(prefix)) {
      entries.emplace_back(name.substr(prefix.size()), value);
    }
  }
  return StateDict(std::move(entries));
}

std::string text_of(const Metadata& metadata, std::string_view key) {
  const auto found =
      std::find_if(metadata.begin(), metadata.end(), [&](const auto& pair) { return pair.first == key; });
  return found == metadata.end() ? std::string() : found->second;
}

std::int64_t number_of(const Metadata& metadata, std::string_view key, const std::string& path) {
  const std::string text = text_of(metadata, key);
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  check<IoError>(error == std::errc() && end == text.data() + text.size() && number >= 0,
                 "'{}': this is no checkpoint of a run: its '{}' is '{}', expected a number", path, key, text);
  return number;
}

Tensor random_state() {
  const Generator& generator = current_generator();
  return from_data(
      std::vector{static_cast<std::int64_t>(generator.seed()), static_cast<std::int64_t>(generator.offset())}, {2},
      {.device = "cpu"});
}

void restore_random(const Tensor& state) {
  const auto values = state.to_vector<std::int64_t>();
  check<IoError>(values.size() == 2, "checkpoint: '{}' has {} numbers, expected 2", kRandom, values.size());
  current_generator().manual_seed(static_cast<std::uint64_t>(values[0]));
  current_generator().set_offset(static_cast<std::uint64_t>(values[1]));
}

// The launcher's name of this job, if the launcher restarts jobs. Processes that do not train together have folders of
// their own.
std::string job_name() {
  const std::string id = parallel::process_environment("TORCHELASTIC_RUN_ID").value_or("none");
  return id == "none" ? ""  // torchrun's default, which other jobs have too
                      : fmt::format("{} rank {}\n", id, parallel::process_environment("RANK").value_or("0"));
}

void check_options(const RunOptions& options) {
  check<ConfigError>(options.every >= 0 && options.keep >= 1, "Run: expected every >= 0 and keep >= 1, got {} and {}",
                     options.every, options.keep);
}

}  // namespace

struct Run::Impl {
  explicit Impl(const RunOptions& given) : options(given) { check_options(options); }

  RunOptions options;
  RankLink ranks{};
  std::optional<RunSignals> signals{};
  std::optional<telemetry::RunFolder> folder{};  // on rank 0
  std::optional<Generations> generations{};      // on rank 0
  std::string path{};                            // of the folder
  std::string session{};                         // see Generations::write_shard()
  std::string loaded_path{};                     // of the checkpoint that was loaded
  StateDict loaded{};                            // what no part has taken yet
  int saved_ranks = 0;                           // of that checkpoint
  std::vector<detail::Part> parts{};
  RunWriter writer{};
  bool begun = false;
  std::int64_t saved_step = -1;  // of the newest checkpoint, which may still be on its way to the disk
  std::int64_t saved_epoch = -1;
  std::int64_t whole_step = -1;  // of the newest one on the disk
  std::int64_t suspect = -1;     // the step that ended an earlier process because it was not finite
  std::optional<autograd::DetectAnomaly> watch{};  // during that step
  int saves_done = RunSignals::saves();  // how many SIGUSR1 have been answered
  std::int64_t next_look = 1;
  std::int64_t last_look = 0;
  Clock::time_point last_look_at = Clock::now();

  std::string checkpoints() const { return path + "/checkpoints"; }
  std::string suspect_file() const { return path + "/checkpoints/not-finite"; }

  void open(const std::string& given);
  Metadata load(std::int64_t& step, std::int64_t& epoch);
  void restore(const detail::Part& part);
  void begin();
  void watch_after(std::int64_t step);
  StateDict own_state() const;
  StateDict snapshot(std::vector<StateDict> of_ranks) const;
  StateDict share_of(StateDict all, int rank) const;
  nn::NamedTensors parameters() const;
  void start_save(std::int64_t step, std::int64_t epoch);
  void finish_save();
  void report_failure();
  void check_finite(std::int64_t step, std::int64_t epoch, const Tensor* loss);
  std::vector<double> look(std::int64_t step);
};

// On rank 0.
void Run::Impl::open(const std::string& given) {
  const std::string program = options.program.empty() ? "run" : options.program;
  folder.emplace(telemetry::RunFolderOptions{
      .program = program, .path = given, .reuse = options.resume, .job = job_name()});
  path = folder->path();
  generations.emplace(checkpoints());
}

// Loads the newest checkpoint on all ranks. Without one the texts are empty.
Metadata Run::Impl::load(std::int64_t& step, std::int64_t& epoch) {
  Metadata texts;
  if (ranks.leads()) {
    Generation newest = Generations::newest_whole(checkpoints(), [](const std::string& problem) {
      core::warn(fmt::format("passing over a damaged checkpoint: {}", problem));
    });
    loaded = std::move(newest.state);
    texts = std::move(newest.metadata);
    folder->cut_metrics(newest.path.empty() ? 0 : number_of(texts, "metrics_bytes", newest.path));
    texts.emplace_back("path", newest.path);
    texts.emplace_back("folder", path);
    texts.emplace_back("this_session", Generations::new_session());
    std::ifstream file(suspect_file());
    std::int64_t number = -1;
    file >> number;
    texts.emplace_back("suspect", std::to_string(file ? number : -1));
  }
  ranks.share(loaded, texts);
  path = text_of(texts, "folder");
  session = text_of(texts, "this_session");
  suspect = std::atoll(text_of(texts, "suspect").c_str());
  loaded_path = text_of(texts, "path");
  if (!loaded_path.empty()) {
    step = number_of(texts, "step", loaded_path);
    epoch = number_of(texts, "epoch", loaded_path);
    saved_ranks = static_cast<int>(number_of(texts, "ranks", loaded_path));
    saved_step = whole_step = step;
    saved_epoch = epoch;
    last_look = step;
    next_look = step + 1;
  }
  return texts;
}

Run::Run(const std::string& path, const RunOptions& options) : impl_(std::make_unique<Impl>(options)) {
  if (options.signals) {
    impl_->signals.emplace();
  }
  if (impl_->ranks.leads()) {
    impl_->open(path);
  }
  impl_->load(steps_, epoch_);
  core::join_progress_page();
  resumed_ = !impl_->loaded_path.empty();
}

Run::~Run() {
  try {
    impl_->report_failure();
  } catch (const Error& error) {
    core::warn(error.what());
  }
}

telemetry::RunFolder* Run::folder() noexcept { return impl_->folder ? &*impl_->folder : nullptr; }

void Run::log(const telemetry::Fields& fields) {
  if (impl_->folder) {
    impl_->folder->append_metrics(fields);
  }
}

// ---- parts ----

std::string Run::free_name(const char* kind) const {
  const auto is_taken = [&](const std::string& name) {
    return std::any_of(impl_->parts.begin(), impl_->parts.end(), [&](const auto& part) { return part.name == name; });
  };
  std::string name = kind;
  for (int number = 2; is_taken(name); ++number) {
    name = fmt::format("{}{}", kind, number);
  }
  return name;
}

const std::string& Run::checked_name(const std::string& name) const {
  check<ConfigError>(!name.empty() && name.find('.') == std::string::npos && name != "rank" && name != kRandom,
                     "Run::track: expected a name without dots, other than 'rank' and '{}', got '{}'", kRandom, name);
  check<ConfigError>(free_name(name.c_str()) == name, "Run::track: there is a part '{}' already", name);
  return name;
}

void Run::add(detail::Part part) {
  check<ConfigError>(!impl_->begun, "Run::track: '{}' comes after the first step; track everything before the loop",
                     part.name);
  if (resumed_) {
    impl_->restore(part);
  }
  if (part.optimizer != nullptr && impl_->options.stop_at_nonfinite) {
    part.optimizer->skip_nonfinite();
  }
  impl_->parts.push_back(std::move(part));
}

void Run::add(const std::string& name, nn::ModuleRef& module) {
  add(detail::Part{.name = name,
                   .save = [module] { return state_of(module); },
                   .load = [module](const StateDict& state) { load_into(module, state, true); },
                   .module = module});
}

void Run::add(const std::string& name, optim::Optimizer& optimizer) {
  add(detail::Part{.name = name,
                   .save = [&optimizer] { return optimizer.state_dict(); },
                   .load = [&optimizer](const StateDict& state) { optimizer.load_state_dict(state); },
                   .optimizer = &optimizer});
}

void Run::add(const std::string& name, data::DataLoader& loader) {
  add(detail::Part{.name = name,
                   .save = [&loader] { return loader.state_dict(); },
                   .load = [&loader](const StateDict& state) { loader.load_state_dict(state); },
                   .per_rank = true});
}

namespace {

template <class T>
detail::Part part_of_numbers(const std::string& name, std::vector<T>* list, T* number) {
  return {.name = name,
          .save =
              [=] {
                const std::vector<T> values = list != nullptr ? *list : std::vector<T>{*number};
                const auto count = static_cast<std::int64_t>(values.size());
                return StateDict({{"value", from_data(values, {count}, {.device = "cpu"})}});
              },
          .load =
              [=](const StateDict& state) {
                const std::vector<T> values = state.at("value").to_vector<T>();
                check<ConfigError>(list != nullptr || values.size() == 1,
                                   "Run::track: '{}' is one number, and the checkpoint has {}", name, values.size());
                if (list != nullptr) {
                  *list = values;
                } else {
                  *number = values[0];
                }
              },
          .per_rank = true};
}

}  // namespace

void Run::add(const std::string& name, std::int64_t& number) {
  add(part_of_numbers<std::int64_t>(name, nullptr, &number));
}
void Run::add(const std::string& name, double& number) { add(part_of_numbers<double>(name, nullptr, &number)); }
void Run::add(const std::string& name, std::vector<double>& numbers) {
  add(part_of_numbers<double>(name, &numbers, nullptr));
}

void Run::Impl::restore(const detail::Part& part) {
  std::string prefix = part.name + ".";
  if (part.per_rank) {
    // With another number of ranks, rank 0 says what they all have used.
    const bool is_known = saved_ranks == ranks.size();
    prefix.insert(0, rank_prefix(is_known ? ranks.rank() : 0));
  }
  const StateDict state = below(loaded, prefix);
  check<ConfigError>(state.size() > 0 || part.save().size() == 0,
                     "Run::track: '{}' has no '{}': the run that saved it did not track one. Begin a new folder, or "
                     "track what that run did, in the same order",
                     loaded_path, part.name);
  try {
    part.load(state);
  } catch (Error& error) {
    error.add_context(fmt::format("while restoring '{}' from {}", part.name, loaded_path));
    throw;
  }
}

// Everything is tracked: what is left to restore?
void Run::Impl::begin() {
  if (std::exchange(begun, true)) {
    return;
  }
  if (loaded_path.empty()) {
    watch_after(0);
    return;
  }
  std::set<std::string, std::less<>> names;
  for (const detail::Part& part : parts) {
    names.insert(part.name);
  }
  for (const auto& [name, value] : loaded) {
    std::string_view rest = name;
    if (rest.starts_with("rank.")) {
      rest.remove_prefix(std::min(rest.size(), rest.find('.', std::strlen("rank.")) + 1));
    }
    const std::string_view part = rest.substr(0, rest.find('.'));
    check<ConfigError>(part == kRandom || names.contains(part),
                       "Run: '{}' has a part '{}' that is not tracked; track it, too, so that it goes on where it was",
                       loaded_path, part);
  }
  // A rank that the run did not have before begins with random numbers of its own.
  if (const Tensor* random = loaded.find(fmt::format("{}{}.state", rank_prefix(ranks.rank()), kRandom))) {
    restore_random(*random);
  }
  loaded = StateDict();
  last_look_at = Clock::now();
  watch_after(saved_step);
}

// Looks at the results of the step after this one if that step was not finite before.
void Run::Impl::watch_after(std::int64_t step) {
  if (step + 1 == suspect) {
    watch.emplace();
  } else if (step == suspect) {
    watch.reset();
  }
}

// ---- steps ----

void Run::step() {
  impl_->begin();
  ++steps_;
  impl_->check_finite(steps_, epoch_, nullptr);
  after_step();
}

void Run::step(const Tensor& loss) {
  impl_->begin();
  ++steps_;
  impl_->check_finite(steps_, epoch_, &loss);
  after_step();
}

void Run::after_step() {
  core::failpoint("step");
  Impl& run = *impl_;
  if (core::ProgressPage* page = core::progress_page.load(std::memory_order_relaxed); page != nullptr) {
    page->run_step.store(steps_, std::memory_order_relaxed);
  }
  run.watch_after(steps_);
  const bool is_due = run.options.every > 0 && steps_ % run.options.every == 0;
  const std::vector<double> wishes = run.look(steps_);
  const int signal = static_cast<int>(wishes[0]);
  if (is_due || signal != 0 || wishes[1] != 0) {
    run.start_save(steps_, epoch_);
  }
  if (wishes[1] != 0) {
    run.saves_done = RunSignals::saves();
  }
  if (signal != 0) {
    run.finish_save();
    throw Interrupted(signal, fmt::format("{} at step {}, in epoch {}: the run is saved in {}, to go on from there",
                                          signal == SIGINT ? "SIGINT" : "SIGTERM", steps_, epoch_, run.path));
  }
}

void Run::save() {
  impl_->begin();
  impl_->start_save(steps_, epoch_);
  impl_->finish_save();
}

void Run::next_epoch() { ++epoch_; }

bool Run::is_over(std::int64_t epochs) {
  impl_->begin();
  if (epoch_ < epochs) {
    return false;
  }
  if (impl_->saved_step != steps_ || impl_->saved_epoch != epoch_) {
    impl_->start_save(steps_, epoch_);
  }
  impl_->finish_save();
  return true;
}

// The signal that ends the run (0: none), and whether one asks for a checkpoint: the same on all ranks.
std::vector<double> Run::Impl::look(std::int64_t step) {
  if (step < next_look) {
    return {0, 0};
  }
  const Clock::time_point now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - last_look_at).count() /
                         static_cast<double>(std::max(step - last_look, std::int64_t{1}));
  const bool listens = signals.has_value();
  std::vector<double> largest =
      ranks.largest({listens ? static_cast<double>(RunSignals::stop()) : 0,
                     listens && RunSignals::saves() != saves_done ? 1.0 : 0.0, seconds});
  next_look = step + std::clamp(static_cast<std::int64_t>(kLookSeconds / std::max(largest[2], 1e-9)), std::int64_t{1},
                                kMostStepsBetweenLooks);
  last_look = step;
  last_look_at = now;
  return largest;
}

nn::NamedTensors Run::Impl::parameters() const {
  nn::NamedTensors all;
  for (const detail::Part& part : parts) {
    if (part.module) {
      for (auto& [name, value] : part.module->named_parameters()) {
        all.emplace_back(part.name + "." + name, value);
      }
    }
  }
  return all;
}

void Run::Impl::check_finite(std::int64_t step, std::int64_t epoch, const Tensor* loss) {
  if (!options.stop_at_nonfinite) {
    return;
  }
  const auto fail_at = [&](const std::string& what) {
    report_failure();
    if (ranks.leads()) {
      core::replace_file(suspect_file(), {std::to_string(step)});
    }
    fail<ValueError>("step {} (epoch {}): {}. {}. Resumed, the run looks at this step, and names the layer that has the "
                     "first such value",
                     step, epoch, what,
                     whole_step >= 0 ? fmt::format("The checkpoint of step {} in {} is not touched by this", whole_step,
                                                   path)
                                     : "No checkpoint was written yet");
  };
  const auto left_out = std::find_if(parts.begin(), parts.end(), [&](const detail::Part& part) {
    // Looking at a GPU's flag would wait for the GPU in each step.
    const bool is_due = part.optimizer != nullptr && (part.optimizer->parameters().front().device().type ==
                                                          DeviceType::cpu ||
                                                      step >= next_look);
    return is_due && part.optimizer->found_nonfinite();
  });
  if (left_out != parts.end()) {
    nn::NamedTensors gradients;
    for (const auto& [name, value] : parameters()) {
      gradients.emplace_back(name, value.grad());
    }
    const std::string name = first_nonfinite(gradients);
    fail_at(fmt::format("a gradient is not finite{}{}, so {} left this update out",
                        name.empty() ? "" : fmt::format(", first that of '{}'", name),
                        loss != nullptr && !autograd::all_finite(*loss) ? ", nor is the loss" : "", left_out->name));
  }
  if (loss != nullptr && loss->device().type == DeviceType::cpu && !autograd::all_finite(*loss)) {
    fail_at("the loss is not finite");
  }
}

// ---- saving ----

StateDict Run::Impl::own_state() const {
  std::vector<StateDict::Entry> entries;
  for (const detail::Part& part : parts) {
    if (part.per_rank) {
      for (const auto& [name, value] : part.save()) {
        entries.emplace_back(part.name + "." + name, copied(value));
      }
    }
  }
  entries.emplace_back(fmt::format("{}.state", kRandom), random_state());
  return StateDict(std::move(entries));
}

// The part of the state that a rank writes: the largest tensors first, each for the rank with the fewest bytes.
StateDict Run::Impl::share_of(StateDict all, int rank) const {
  const auto bytes_of = [](const Tensor& tensor) { return tensor.numel() * static_cast<std::int64_t>(item_size(tensor.dtype())); };
  std::vector<const StateDict::Entry*> by_size;
  for (const StateDict::Entry& entry : all) {
    by_size.push_back(&entry);
  }
  std::stable_sort(by_size.begin(), by_size.end(),
                   [&](const auto* a, const auto* b) { return bytes_of(a->second) > bytes_of(b->second); });
  std::vector<std::int64_t> loads(static_cast<std::size_t>(ranks.size()));
  std::vector<StateDict::Entry> mine;
  for (const StateDict::Entry* entry : by_size) {
    const auto least = std::min_element(loads.begin(), loads.end());
    *least += bytes_of(entry->second);
    if (least - loads.begin() == rank) {
      mine.push_back(*entry);
    }
  }
  return StateDict(std::move(mine));
}

// A copy of what this rank writes, which later steps do not change.
StateDict Run::Impl::snapshot(std::vector<StateDict> of_ranks) const {
  std::vector<StateDict::Entry> entries;
  for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
    for (const auto& [name, value] : of_ranks[rank]) {
      entries.emplace_back(rank_prefix(static_cast<int>(rank)) + name, value);
    }
  }
  std::vector<StateDict::Entry> common;
  for (const detail::Part& part : parts) {
    if (!part.per_rank) {
      for (const auto& [name, value] : part.save()) {
        common.emplace_back(part.name + "." + name, value);
      }
    }
  }
  StateDict shared(std::move(common));
  if (options.sharded) {
    shared = share_of(std::move(shared), ranks.rank());
  }
  for (const auto& [name, value] : shared) {
    entries.emplace_back(name, name.starts_with("optimizer") ? value : copied(value));  // which is a copy already
  }
  return StateDict(std::move(entries));
}

void Run::Impl::start_save(std::int64_t step, std::int64_t epoch) {
  const NoGradGuard no_grad;
  ranks.compare(parameters());
  std::vector<StateDict> of_ranks = ranks.gather(own_state());
  report_failure();  // of the checkpoint before
  saved_step = step;
  saved_epoch = epoch;
  if (!ranks.leads() && !options.sharded) {
    return;
  }
  nn::NamedTensors trained;
  StateDict state = snapshot(std::move(of_ranks));
  for (const auto& [name, value] : parameters()) {
    if (const Tensor* copy = state.find(name)) {  // a tied parameter has one name
      trained.emplace_back(name, *copy);
    }
  }
  core::failpoint("save.copied");
  Metadata texts{{"step", std::to_string(step)},
                 {"epoch", std::to_string(epoch)},
                 {"ranks", std::to_string(ranks.size())},
                 {"metrics_bytes", std::to_string(folder ? folder->metrics_bytes() : 0)}};
  const std::string shards_of = fmt::format("{} {}", session, step);
  if (options.sharded) {
    texts.emplace_back(kShards, std::to_string(ranks.size()));
    texts.emplace_back(kSession, shards_of);
  }
  writer.start(
      [this, step, shards_of, state = std::move(state), texts = std::move(texts), trained = std::move(trained)] {
        const std::string bad = first_nonfinite(trained);
        check<ValueError>(bad.empty(),
                          "step {}: '{}' is not finite, so this state was not saved; the checkpoints before it are as "
                          "they were",
                          step, bad);
        if (generations) {
          generations->write(step, state, texts, options.keep);
        } else {
          Generations::write_shard(checkpoints(), step, ranks.rank(), state, shards_of);
        }
      },
      options.async_save);
}

// Waits until the checkpoint is on the disk, on all ranks.
void Run::Impl::finish_save() {
  if (const std::exception_ptr error = writer.wait()) {
    std::rethrow_exception(error);
  }
  whole_step = saved_step;
  ranks.wait_for_all();
}

// A full disk does not end a training that may go on without a checkpoint; weights that are not finite do.
void Run::Impl::report_failure() {
  try {
    if (const std::exception_ptr error = writer.wait()) {
      std::rethrow_exception(error);
    }
    whole_step = saved_step;
  } catch (const IoError& error) {
    core::warn(fmt::format("a checkpoint could not be written, and the training goes on without it: {}", error.what()));
  }
}

}  // namespace tandem::inline v0::checkpoint
