#include <tandem/data/loader.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <fmt/ranges.h>

#include <tandem/core/check.h>
#include <tandem/core/cuda/per_gpu.h>
#include <tandem/core/cuda_stream.h>
#include <tandem/core/span.h>
#include <tandem/core/system_limits.h>
#include <tandem/data/diagnostics.h>
#include <tandem/kernels/philox.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::data {

namespace {

// Derives a seed from the loader's seed for (epoch, what): -1 for the order, or a batch number.
std::uint64_t derive(std::uint64_t seed, std::int64_t epoch, std::int64_t what) {
  const auto block = kernels::philox(seed, static_cast<std::uint64_t>(what), static_cast<std::uint64_t>(epoch));
  return (std::uint64_t{block[0]} << 32) | block[1];
}

// "samples 3, 1, 4"
std::string list(std::span<const std::int64_t> indices) {
  constexpr std::size_t kMaxListed = 8;
  const auto listed = indices.first(std::min(indices.size(), kMaxListed));
  const std::string more = listed.size() < indices.size() ? fmt::format(", ... ({} in all)", indices.size()) : "";
  return fmt::format("samples {}{}", fmt::join(listed, ", "), more);
}

std::uint64_t draw_seed() {
  Generator& generator = current_generator();
  return derive(generator.seed(), -1, static_cast<std::int64_t>(generator.reserve(1)));
}

// One stream for all loaders, because GPU memory is cached per stream.
cuda::Stream copy_stream_of(Device device) {
  static constinit cuda::PerGpu<cuda::Stream, cuda::LockPlace::library_made> streams;
  return streams.get(device.index, [&] { return std::make_unique<cuda::Stream>(device); });
}

}  // namespace

/// One epoch in progress. Workers claim batches in order, at most `window` ahead of the reader, and store each one in
/// its place, where the reader waits for it.
struct DataLoader::Pass {
  struct Slot {
    bool ready = false;
    Example batch;
    std::exception_ptr error;
  };

  DatasetHandle dataset;
  DataLoaderOptions options;
  std::uint64_t seed;
  std::int64_t batches;
  std::vector<std::int64_t> order;
  std::shared_ptr<Place> place;  // after the batches that were handed out

  Place start_place = *place;
  std::int64_t read = start_place.batch;      // number of batches handed out, or skipped
  std::optional<cuda::Stream> copy_stream{};  // copies batches to a GPU
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Slot> slots;
  std::int64_t claimed = read;
  bool stopping = false;
  std::vector<std::jthread> workers;

  Example load(std::int64_t batch) const {
    const SpanScope traced({.name = "load batch"});
    Generator generator(derive(seed, start_place.epoch, start_place.used + batch));
    const GeneratorScope scope(generator);
    const auto first = static_cast<std::size_t>(batch * options.batch_size);
    const auto count = std::min(static_cast<std::size_t>(options.batch_size), order.size() - first);
    const auto indices = std::span(order).subspan(first, count);
    Example example = options.collate_fn ? collate(indices) : get_batch(indices);
    if (options.device) {
      for (Tensor* part : {&example.x, &example.y}) {
        if (part->defined()) {  // a collate_fn may leave a part undefined
          *part =
              copy_stream && part->device().type == DeviceType::cpu ? part->pin_memory() : part->to(*options.device);
        }
      }
    }
    return example;
  }

  // Copies a batch to a GPU on a separate stream, while the GPU still computes; later work of the caller waits for the
  // copy.
  void send(Example& example) const {
    {
      const cuda::StreamScope scope(*copy_stream);
      for (Tensor* part : {&example.x, &example.y}) {
        *part = part->defined() ? part->to(*options.device, true) : Tensor();
      }
    }
    cuda::current_stream(*options.device).wait_stream(*copy_stream);
  }

  Example get_batch(std::span<const std::int64_t> indices) const {
    try {
      return dataset->get_batch(indices);
    } catch (const Error&) {
      throw;
    } catch (...) {
      rethrow_while(fmt::format("loading {}", list(indices)));  // for a data set that overrides get_batch()
    }
  }

  Example collate(std::span<const std::int64_t> indices) const {
    std::vector<Example> samples;
    for (const std::int64_t index : indices) {
      samples.push_back(dataset->load(index));
    }
    try {
      return options.collate_fn(samples);
    } catch (...) {
      rethrow_while(fmt::format("collating {}", list(indices)));
    }
  }

  void start() {
    if (options.device && options.device->type == DeviceType::cuda) {
      copy_stream = copy_stream_of(*options.device);
    }
    if (options.num_workers == 0) {
      return;
    }
    slots.resize(static_cast<std::size_t>(options.num_workers) * static_cast<std::size_t>(options.prefetch_factor));
    // Scope, frame and observer point to the caller's stack, which the pass may outlive, and are irrelevant to loading.
    // Each batch has its own generator.
    const core::ThreadState& caller = core::thread_state();
    const core::ThreadState carried{.device = caller.device, .grad_enabled = caller.grad_enabled, .rank = caller.rank};
    for (int i = 0; i < options.num_workers; ++i) {
      workers.push_back(core::start_thread<std::jthread>("a worker of the data loader", [this, state = carried] {
        const core::ThreadStateScope scope(state);
        core::set_thread_purpose("loader");
        work();
      }));
    }
  }

  void work() {
    const auto window = static_cast<std::int64_t>(slots.size());
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return stopping || claimed == batches || claimed < read + window; });
      if (stopping || claimed == batches) {
        return;
      }
      const std::int64_t batch = claimed++;
      lock.unlock();
      Slot loaded{.ready = true, .batch = {}, .error = nullptr};
      try {
        loaded.batch = load(batch);
      } catch (...) {
        loaded.error = std::current_exception();
      }
      lock.lock();
      slots[static_cast<std::size_t>(batch % window)] = std::move(loaded);
      changed.notify_all();
    }
  }

  Example next() {
    if (workers.empty()) {
      return load(read++);
    }
    std::unique_lock lock(mutex);
    Slot& slot = slots[static_cast<std::size_t>(read) % slots.size()];
    changed.wait(lock, [&] { return slot.ready; });
    Slot taken = std::exchange(slot, Slot{});
    ++read;
    changed.notify_all();
    lock.unlock();
    if (taken.error) {
      std::rethrow_exception(taken.error);
    }
    return std::move(taken.batch);
  }

  ~Pass() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    changed.notify_all();
    workers.clear();  // joins
  }
};

DataLoader::DataLoader(DatasetHandle dataset, const DataLoaderOptions& options)
    : dataset_(std::move(dataset)), options_(options), seed_(options.seed ? *options.seed : draw_seed()) {
  check<ConfigError>(dataset_->size() > 0, "DataLoader: the data set is empty");
  check<ConfigError>(options.batch_size >= 1, "DataLoader: batch_size must be at least 1, got {}", options.batch_size);
  check<ConfigError>(options.num_workers >= 0 && options.num_workers <= 256 && options.prefetch_factor >= 1,
                     "DataLoader: needs 0 <= num_workers <= 256 and prefetch_factor >= 1, got {} and {}",
                     options.num_workers, options.prefetch_factor);
  check<ConfigError>(!options.shuffle || options.sampler == nullptr,
                     "DataLoader: sampler option is mutually exclusive with shuffle [TDM-E501]");
  if (options.device) {
    require_available(*options.device);
  }
  if (const auto expected = options.sampler ? options.sampler->data_size() : std::nullopt) {
    check<ConfigError>(*expected == dataset_->size(),
                       "DataLoader: the sampler was made for a data set of {} samples, and this one has {}; give both "
                       "the same",
                       *expected, dataset_->size());
  }
  const std::int64_t samples = samples_per_epoch();
  check<ConfigError>(samples >= 0, "DataLoader: the sampler's size() is {}", samples);
  const std::int64_t most = options.sampler ? options.sampler->largest_size() : samples;
  check<ConfigError>(!options.drop_last || options.batch_size <= most,
                     "DataLoader: batch_size {} is larger than the {} ({} samples), so with drop_last there is "
                     "no batch at all",
                     options.batch_size, options.sampler ? "sampler's epoch" : "data set", most);
}

std::int64_t DataLoader::samples_per_epoch() const {
  return options_.sampler ? options_.sampler->size() : dataset_->size();
}

std::int64_t DataLoader::num_replicas() const { return options_.sampler ? options_.sampler->num_replicas() : 1; }

// The samples of an epoch, of all ranks together. Loaders that exchange states have the same number.
std::int64_t DataLoader::samples_of_all() const {
  const std::int64_t shared = samples_per_epoch() * num_replicas();
  return num_replicas() == 1 ? shared : options_.sampler->data_size().value_or(shared);
}

std::int64_t DataLoader::batches_of(std::int64_t samples) const {
  return options_.drop_last ? samples / options_.batch_size
                            : samples / options_.batch_size + (samples % options_.batch_size != 0 ? 1 : 0);
}

std::int64_t DataLoader::size() const { return batches_of(samples_per_epoch()); }

std::vector<std::int64_t> DataLoader::order_after(const Place& place) const {
  Generator generator(derive(seed_, place.epoch, -1));
  const GeneratorScope scope(generator);
  if (!options_.sampler) {
    std::vector<std::int64_t> order =
        options_.shuffle ? RandomSampler(*dataset_).indices() : SequentialSampler(*dataset_).indices();
    order.erase(order.begin(), order.begin() + place.used);
    return order;
  }
  const bool is_whole = place.used == 0;
  std::vector<std::int64_t> order =
      is_whole ? options_.sampler->indices_of(place.epoch) : options_.sampler->indices_after(place.epoch, place.used);
  check<ConfigError>(!is_whole || static_cast<std::int64_t>(order.size()) == options_.sampler->size(),
                     "DataLoader: the sampler gave {} indices, expected {} as its size() says", order.size(),
                     options_.sampler->size());
  for (const std::int64_t index : order) {
    check<ConfigError>(index >= 0 && index < dataset_->size(),
                       "DataLoader: the sampler gave index {}, but the data set has {} samples [TDM-E503]", index,
                       dataset_->size());
  }
  return order;
}

DataLoader::Iterator DataLoader::begin() {
  const SpanScope timed(Phase::input);
  const std::int64_t epoch = options_.sampler ? options_.sampler->next_epoch(epoch_) : this->epoch();
  place_ = std::make_shared<Place>(resumed_ && resumed_->epoch == epoch ? *resumed_ : Place{.epoch = epoch});
  std::vector<std::int64_t> order = order_after(*place_);
  const std::int64_t batches = batches_of(static_cast<std::int64_t>(order.size()));
  auto pass = std::make_unique<Pass>(dataset_, options_, seed_, batches, std::move(order), place_);
  epoch_ = epoch + 1;
  resumed_.reset();
  pass->start();
  return Iterator(std::move(pass));
}

StateDict DataLoader::state_dict() const {
  const Place place = place_ ? *place_ : Place{.epoch = epoch()};
  StateDict state;
  const auto set = [&](const char* name, std::int64_t value) { state.set(name, tensor(value)); };
  set("epoch", place.epoch);
  set("batch", place.batch);
  set("used", place.used);
  set("seed", static_cast<std::int64_t>(seed_));
  set("shuffle", options_.shuffle ? 1 : 0);
  set("samples", samples_of_all());
  set("batch_size", options_.batch_size);
  set("replicas", num_replicas());
  return state;
}

void DataLoader::load_state_dict(const StateDict& state) {
  const auto number = [&](const char* name) {
    const Tensor& value = state.at(name);
    check<ConfigError>(value.defined() && value.numel() == 1 && value.dtype() == DType::i64,
                       "DataLoader: '{}' in the state is not a whole number", name);
    return value.to("cpu").item<std::int64_t>();
  };
  const auto compare = [&](const char* name, std::int64_t own) {
    const std::int64_t saved = number(name);
    check<ConfigError>(saved == own, "DataLoader: the state is of a loader with {} {}, and this one has {}", name,
                       saved, own);
  };
  compare("samples", samples_of_all());
  compare("shuffle", options_.shuffle ? 1 : 0);
  const std::int64_t seed = number("seed");
  const std::int64_t batch_size = number("batch_size");
  const std::int64_t replicas = number("replicas");
  Place place{number("epoch"), number("batch"), number("used")};
  const std::int64_t samples = samples_of_all();
  const auto parts = [](std::int64_t count, std::int64_t size) { return count / size + (count % size != 0 ? 1 : 0); };
  const bool is_sane = place.epoch >= 0 && place.used >= 0 && place.used <= samples && batch_size >= 1 && replicas >= 1;
  const std::int64_t batches = is_sane ? parts(parts(samples - place.used, replicas), batch_size) : 0;
  check<ConfigError>(is_sane && place.batch >= 0 && place.batch <= batches,
                     "DataLoader: the state is at batch {} of epoch {}, after {} other samples, and there are {} "
                     "batches of {} for each of {} ranks",
                     place.batch, place.epoch, place.used, batches, batch_size, replicas);
  if (batch_size != options_.batch_size || replicas != num_replicas()) {
    place.used = place.batch == batches ? samples : place.used + place.batch * batch_size * replicas;
    place.batch = 0;
  }
  epoch_ = place.epoch;
  place_ = std::make_shared<Place>(place);
  resumed_ = place;
  seed_ = static_cast<std::uint64_t>(seed);
}

DataLoader::Iterator::Iterator(std::unique_ptr<Pass> pass) : pass_(std::move(pass)) { ++*this; }
DataLoader::Iterator::Iterator(Iterator&&) noexcept = default;
DataLoader::Iterator& DataLoader::Iterator::operator=(Iterator&&) noexcept = default;
DataLoader::Iterator::~Iterator() = default;

DataLoader::Iterator& DataLoader::Iterator::operator++() {
  const SpanScope timed(Phase::input);
  check<ConfigError>(pass_ != nullptr, "DataLoader: the iterator is at its end; begin() starts the next epoch");
  if (pass_->read >= pass_->batches) {
    *pass_->place = {.epoch = pass_->place->epoch + 1};
    pass_.reset();
    current_ = {};
  } else {
    current_ = pass_->next();
    pass_->place->batch = pass_->read;
    if (pass_->copy_stream) {
      pass_->send(current_);
    }
  }
  return *this;
}

bool DataLoader::Iterator::done() const noexcept { return pass_ == nullptr; }

}  // namespace tandem::inline v0::data
