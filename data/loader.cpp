#include <tandem/data/loader.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include <tandem/core/check.h>
#include <tandem/kernels/philox.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::data {

namespace {

// A seed for one thing out of the seed for all: (epoch, what), what = -1 for the order, else a batch number.
std::uint64_t derive(std::uint64_t seed, std::int64_t epoch, std::int64_t what) {
  const auto block = kernels::philox(seed, static_cast<std::uint64_t>(what), static_cast<std::uint64_t>(epoch));
  return (std::uint64_t{block[0]} << 32) | block[1];
}

std::uint64_t draw_seed() {
  Generator& generator = current_generator();
  return derive(generator.seed(), -1, static_cast<std::int64_t>(generator.reserve(1)));
}

}  // namespace

/// One epoch under way. Workers claim batches in order, at most `window` ahead of the reader, and leave each in its
/// place, where the reader waits for it.
struct DataLoader::Pass {
  struct Place {
    bool ready = false;
    Example batch;
    std::exception_ptr error;
  };

  std::shared_ptr<const Dataset> dataset;
  DataLoaderOptions options;
  std::uint64_t seed;
  std::int64_t epoch;
  std::int64_t batches;
  std::vector<std::int64_t> order;
  std::int64_t read = 0;  // batches handed out

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Place> places;
  std::int64_t claimed = 0;
  bool stopping = false;
  std::vector<std::jthread> workers;

  Example load(std::int64_t batch) const {
    Generator generator(derive(seed, epoch, batch));
    const GeneratorScope scope(generator);
    const auto first = static_cast<std::size_t>(batch * options.batch_size);
    const auto count = std::min(static_cast<std::size_t>(options.batch_size), order.size() - first);
    Example example = dataset->get_batch(std::span(order).subspan(first, count));
    if (options.device) {
      example = {example.x.to(*options.device), example.y.to(*options.device)};
    }
    return example;
  }

  void start() {
    if (options.num_workers == 0) {
      return;
    }
    places.resize(static_cast<std::size_t>(options.num_workers) * static_cast<std::size_t>(options.prefetch_factor));
    // Scope, frame and observer are places on the caller's stack, which a pass may outlive, and no business of loading;
    // the generator is the batch's own.
    const core::ThreadState& caller = core::thread_state();
    const core::ThreadState carried{.device = caller.device, .grad_enabled = caller.grad_enabled};
    for (int i = 0; i < options.num_workers; ++i) {
      workers.emplace_back([this, state = carried] {
        const core::ThreadStateScope scope(state);
        work();
      });
    }
  }

  void work() {
    const auto window = static_cast<std::int64_t>(places.size());
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return stopping || claimed == batches || claimed < read + window; });
      if (stopping || claimed == batches) {
        return;
      }
      const std::int64_t batch = claimed++;
      lock.unlock();
      Place loaded{.ready = true, .batch = {}, .error = nullptr};
      try {
        loaded.batch = load(batch);
      } catch (...) {
        loaded.error = std::current_exception();
      }
      lock.lock();
      places[static_cast<std::size_t>(batch % window)] = std::move(loaded);
      changed.notify_all();
    }
  }

  Example next() {
    if (workers.empty()) {
      return load(read++);
    }
    std::unique_lock lock(mutex);
    Place& place = places[static_cast<std::size_t>(read) % places.size()];
    changed.wait(lock, [&] { return place.ready; });
    Place taken = std::exchange(place, Place{});
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

DataLoader::DataLoader(std::shared_ptr<const Dataset> dataset, const DataLoaderOptions& options)
    : dataset_(std::move(dataset)), options_(options), seed_(options.seed ? *options.seed : draw_seed()) {
  check<ConfigError>(dataset_ != nullptr && dataset_->size() > 0, "DataLoader: the data set is empty");
  check<ConfigError>(options.batch_size >= 1, "DataLoader: batch_size must be at least 1, got {}", options.batch_size);
  check<ConfigError>(options.num_workers >= 0 && options.num_workers <= 256 && options.prefetch_factor >= 1,
                     "DataLoader: needs 0 <= num_workers <= 256 and prefetch_factor >= 1, got {} and {}",
                     options.num_workers, options.prefetch_factor);
  if (options.device) {
    require_available(*options.device);
  }
  check<ConfigError>(!options.drop_last || options.batch_size <= dataset_->size(),
                     "DataLoader: batch_size {} is larger than the data set ({} samples), so with drop_last there is "
                     "no batch at all",
                     options.batch_size, dataset_->size());
}

std::int64_t DataLoader::size() const noexcept {
  const std::int64_t samples = dataset_->size();
  return options_.drop_last ? samples / options_.batch_size
                            : samples / options_.batch_size + (samples % options_.batch_size != 0 ? 1 : 0);
}

DataLoader::Iterator DataLoader::begin() {
  auto pass = std::make_unique<Pass>();
  pass->dataset = dataset_;
  pass->options = options_;
  pass->seed = seed_;
  pass->epoch = epoch_++;
  pass->batches = size();
  const std::int64_t samples = dataset_->size();
  if (options_.shuffle) {
    Generator generator(derive(seed_, pass->epoch, -1));
    const GeneratorScope scope(generator);
    pass->order = randperm(samples).to_vector<std::int64_t>();
  } else {
    pass->order = arange(samples).to_vector<std::int64_t>();
  }
  pass->start();
  return Iterator(std::move(pass));
}

DataLoader::Iterator::Iterator(std::unique_ptr<Pass> pass) : pass_(std::move(pass)) { ++*this; }
DataLoader::Iterator::Iterator(Iterator&&) noexcept = default;
DataLoader::Iterator& DataLoader::Iterator::operator=(Iterator&&) noexcept = default;
DataLoader::Iterator::~Iterator() = default;

DataLoader::Iterator& DataLoader::Iterator::operator++() {
  check<ConfigError>(pass_ != nullptr, "DataLoader: the iterator is at its end; begin() starts the next epoch");
  if (pass_->read == pass_->batches) {
    pass_.reset();
    current_ = {};
  } else {
    current_ = pass_->next();
  }
  return *this;
}

bool DataLoader::Iterator::done() const noexcept { return pass_ == nullptr; }

}  // namespace tandem::inline v0::data
