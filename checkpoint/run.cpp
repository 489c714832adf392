#include <tandem/checkpoint/run.h>

#include <algorithm>
#include <csignal>
#include <exception>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include <tandem/checkpoint/module_tensors.h>
#include <tandem/checkpoint/run_impl.h>
#include <tandem/core/check.h>
#include <tandem/core/failpoint.h>
#include <tandem/core/progress_page.h>
#include <tandem/core/warning.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::checkpoint {

namespace {

constexpr int kSignals = -1;  // the number of no Run

}  // namespace

Run::Run(const std::string& path, const RunOptions& options) : impl_(std::make_unique<Impl>(options)) {
  if (options.signals) {
    impl_->signals.emplace();
    if (impl_->elastic != nullptr && !impl_->elastic->memory(kSignals).has_value()) {
      impl_->elastic->memory(kSignals) = std::make_shared<RunSignals>();  // signals count between two Runs, too
    }
  }
  resumed_ = impl_->remember(steps_, epoch_);
  if (!resumed_) {
    if (impl_->ranks.leads()) {
      impl_->open(path, options.resume && !path.empty() && Generations::is_used(path + "/checkpoints"));
    }
    resumed_ = impl_->load(steps_, epoch_);
  }
  core::join_progress_page();
}

Run::~Run() {
  const auto try_to = [](const auto& act) {
    try {
      act();
    } catch (const std::exception& error) {
      core::warn(error.what());
    }
  };
  try_to([&] { impl_->report_failure(); });
  try_to([&] {
    for (const detail::Part& part : impl_->parts.list()) {
      if (part.optimizer != nullptr && impl_->options.stop_at_nonfinite) {
        part.optimizer->skip_nonfinite(false);
      }
    }
  });
  try_to([&] {
    if (impl_->notes && impl_->notes->has_noted()) {
      impl_->elastic->memory(impl_->number) = impl_->notes->recall(impl_->path, impl_->saves_done);
    }
  });
}

telemetry::RunFolder* Run::folder() noexcept { return impl_->folder ? &*impl_->folder : nullptr; }

void Run::log(const telemetry::Fields& fields) {
  if (impl_->notes) {
    impl_->notes->note_line(telemetry::to_json(fields) + "\n");
  }
  if (impl_->folder) {
    impl_->folder->append_metrics(fields);
  }
}

std::string Run::free_name(const char* kind) const {
  std::string name = kind;
  for (int number = 2; impl_->parts.has(name); ++number) {
    name = fmt::format("{}{}", kind, number);
  }
  return name;
}

const std::string& Run::checked_name(const std::string& name) const {
  check<ConfigError>(!name.empty() && name.find('.') == std::string::npos && name != "rank" && name != kRandomPart,
                     "Run::track: expected a name without dots, other than 'rank' and '{}', got '{}'", kRandomPart,
                     name);
  check<ConfigError>(!impl_->parts.has(name), "Run::track: there is a part '{}' already", name);
  return name;
}

void Run::add(detail::Part part) {
  check<ConfigError>(!impl_->begun, "Run::track: '{}' comes after the first step; track everything before the loop",
                     part.name);
  optim::Optimizer* optimizer = part.optimizer;
  impl_->parts.add(std::move(part));
  impl_->parts.restore_random();  // making the part may have drawn some
  if (optimizer != nullptr && impl_->options.stop_at_nonfinite) {
    optimizer->skip_nonfinite();
  }
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

// A loader whose pass is over is at the beginning of the next epoch. In this epoch, that is its end: other ranks may
// still have batches.
void Run::add(const std::string& name, data::DataLoader& loader) {
  const auto save = [this, &loader] {
    StateDict state = loader.state_dict();
    if (is_past_epoch(state)) {
      state.set("epoch", tensor(epoch_));
      state.set("used", state.at("samples"));
    }
    return state;
  };
  add(detail::Part{.name = name,
                   .save = save,
                   .load = [&loader](const StateDict& state) { loader.load_state_dict(state); },
                   .per_rank = true,
                   .loader = &loader});
}

bool Run::is_past_epoch(const StateDict& loader) const {
  const auto is = [&](const char* name, std::int64_t value) { return loader.at(name).item<std::int64_t>() == value; };
  return is("epoch", epoch_ + 1) && is("batch", 0) && is("used", 0);
}

void Run::add(const std::string& name, std::int64_t& number) { add(part_of(name, number)); }

void Run::add(const std::string& name, double& number) { add(part_of(name, number)); }

void Run::add(const std::string& name, std::vector<double>& numbers) { add(part_of(name, numbers)); }

void Run::step() {
  impl_->begin();
  ++steps_;
  note();
  impl_->check_finite(steps_, epoch_, nullptr);
  after_step();
}

void Run::step(const Tensor& loss) {
  impl_->begin();
  ++steps_;
  note();
  impl_->check_finite(steps_, epoch_, &loss);
  after_step();
}

// Before all exchanges, in which other ranks may be lost.
void Run::note() {
  if (impl_->notes) {
    if (!impl_->notes->has_noted()) {
      impl_->elastic->memory(impl_->number).reset();
    }
    impl_->notes->note(steps_, epoch_);
  }
}

void Run::after_step() {
  core::failpoint("step");
  Impl& run = *impl_;
  run.has_stepped = true;
  if (core::ProgressPage* page = core::progress_page.load(std::memory_order_relaxed); page != nullptr) {
    page->run_step.store(steps_, std::memory_order_relaxed);
  }
  if (run.watch->after(steps_) && run.ranks.leads()) {
    std::error_code ignored;
    std::filesystem::remove(run.suspect_file(), ignored);
  }
  answer(run.look(steps_), run.options.every > 0 && steps_ % run.options.every == 0);
}

void Run::answer(const Wishes& wishes, bool is_due) {
  Impl& run = *impl_;
  if (is_due || wishes.signal != 0 || wishes.saves) {
    run.start_save(steps_, epoch_);
  }
  if (wishes.saves) {
    run.saves_done = RunSignals::saves();
  }
  if (wishes.signal != 0) {
    run.finish_save();
    throw Interrupted(wishes.signal,
                      fmt::format("{} at step {}, in epoch {}: the run is saved in {}, to go on from there",
                                  wishes.signal == SIGINT ? "SIGINT" : "SIGTERM", steps_, epoch_, run.path));
  }
  if (wishes.newcomers) {
    run.elastic->prepare_to_meet();
    run.ranks.largest({0});  // all are prepared
    throw parallel::RanksMeetAnew();
  }
}

void Run::save() {
  impl_->begin();
  const auto loader = std::find_if(impl_->parts.list().begin(), impl_->parts.list().end(),
                                   [](const detail::Part& part) { return part.loader != nullptr; });
  if (impl_->in_epochs && loader != impl_->parts.list().end()) {
    const StateDict place = loader->save();
    if (place.at("used").item<std::int64_t>() == place.at("samples").item<std::int64_t>()) {
      impl_->saves_after_epoch = true;  // what follows in the epoch's body belongs to it
      return;
    }
  }
  impl_->start_save(steps_, epoch_);
  impl_->finish_save();
}

Run::Epochs Run::epochs(std::int64_t count) {
  impl_->begin();
  if (!impl_->has_stepped) {
    impl_->parts.restore_random();
    note();
  }
  impl_->in_epochs = true;
  return {this, count};
}

void Run::next_epoch() {
  ++epoch_;
  Impl& run = *impl_;
  for (const detail::Part& part : run.parts.list()) {
    if (part.loader != nullptr) {
      part.loader->end_epoch();  // the body may have left the loop by `break`
    }
  }
  note();
  run.next_look = steps_;
  const Wishes wishes = run.look(steps_, run.elastic != nullptr);
  if (std::exchange(run.saves_after_epoch, false)) {
    run.start_save(steps_, epoch_);
    run.finish_save();
  }
  answer(wishes, false);
}

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

}  // namespace tandem::inline v0::checkpoint
