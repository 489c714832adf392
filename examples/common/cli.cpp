#include "common/cli.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <set>
#include <string_view>
#include <variant>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/cuda.h>
#include <tandem/core/device.h>
#include <tandem/core/error.h>
#include <tandem/core/thread_pool.h>
#include <tandem/parallel/rendezvous/environment.h>
#include <tandem/telemetry/run_folder.h>
#include <tandem/tensor/generator.h>

#include "common/precision.h"

namespace example {

namespace {

constexpr std::int64_t kMaxCount = 1'000'000;

std::vector<std::int64_t> read_hidden(const std::string& text) {
  std::vector<std::int64_t> sizes;
  std::string_view rest = text;
  for (bool more = true; more;) {
    const auto comma = rest.find(',');
    more = comma != std::string_view::npos;
    std::int64_t size = 0;
    if (!read_whole(rest.substr(0, comma), size) || size < 1 || size > kMaxCount) {
      refuse("--hidden", fmt::format("layer sizes from 1 to {} with commas between them, like 256,128", kMaxCount),
             text);
    }
    sizes.push_back(size);
    rest.remove_prefix(more ? comma + 1 : rest.size());
  }
  return sizes;
}

void check_device(const char* option, const std::string& text) {
  try {
    tandem::require_available(tandem::Device(text));
  } catch (const tandem::Error& e) {
    throw CLI::ValidationError(option, e.what());
  }
}

std::vector<std::string> read_devices(const std::string& text) {
  std::vector<std::string> devices = CLI::detail::split(text, ',');
  for (const std::string& device : devices) {
    check_device("--devices", device);
    if (std::count(devices.begin(), devices.end(), device) > 1) {
      refuse("--devices", "different devices with commas between them, like cpu:0,cpu:1", text);
    }
  }
  return devices;
}

// Chooses the way to train where the command line leaves it open.
void choose_parallel(const CLI::App& app, CommonOptions& options) {
  const tandem::parallel::WorldInfo world = tandem::parallel::read_world();
  const bool is_chosen = app.count("--parallel") > 0;
  if (!is_chosen && (options.ranks > 0 || world.world_size > 1)) {
    options.parallel = "ddp";
  }
  if (options.ranks > 0 && options.parallel != "ddp") {
    throw CLI::ValidationError("--ranks", "goes with --parallel ddp");
  }
  if (options.shard != "none" && options.parallel != "ddp") {
    throw CLI::ValidationError("--shard", "goes with --parallel ddp");
  }
  if (options.parallel != "ddp" && world.world_size > 1 && world.rank == 0) {
    narrate(
        fmt::format("warning: --parallel {} in each of {} processes: none knows of the others, and each trains on "
                    "all of the data; --parallel ddp makes them train together",
                    options.parallel, world.world_size));
  }
}

// Checks that the options fit together, and fills in the devices.
void settle_devices(const CLI::App& app, CommonOptions& options) {
  if (options.parallel == "none") {
    if (!options.devices.empty()) {
      throw CLI::ValidationError("--devices", "goes with --parallel dp or ddp; for one device there is --device");
    }
    return;
  }
  if (app.count("--device") > 0 && (options.parallel == "dp" || !options.devices.empty())) {
    throw CLI::ValidationError(
        "--device", fmt::format("is for one device; with --parallel {} there is --devices", options.parallel));
  }
  if (options.captured) {
    throw CLI::ValidationError("--captured", "a step over several devices or ranks cannot be captured yet");
  }
  if (options.parallel == "ddp") {
    return;
  }
  if (options.devices.empty()) {
    for (int gpu = 0; gpu < tandem::cuda::device_count(); ++gpu) {
      options.devices.push_back(fmt::format("cuda:{}", gpu));
    }
  }
  if (!options.devices.empty()) {
    options.device = options.devices.front();
  }
}

// The flags that place a run on devices and ranks; they do not change what is learned.
const std::set<std::string> kPlaces{"--parallel", "--ranks", "--device", "--devices", "--shard"};
// Further flags that may stand beside --resume.
const std::set<std::string> kChangeable{"--epochs", "--batch-size", "--threads", "--checkpoint-every",
                                        "--resume", "--json",       "--quiet",   "--captured",
                                        "--report", "--help",       "-h",        "--version"};
const std::set<std::string> kNotTakenOver{"--out", "--resume", "--json", "--quiet", "--report"};

std::string flag_of(const std::string& argument) { return argument.substr(0, argument.find('=')); }

// The value of --resume, before anything else is parsed.
std::string resumed_folder(const std::vector<std::string>& given) {
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (given[i].starts_with("--resume=")) {
      return given[i].substr(given[i].find('=') + 1);
    }
    if (given[i] == "--resume" && i + 1 < given.size()) {
      return given[i + 1];
    }
  }
  return {};
}

// The arguments of the run in `folder`, as "--flag=value". Ranks and devices are those of the new command line, if it
// names any or a launcher has started this process.
std::vector<std::string> arguments_of(const std::string& folder, const std::vector<std::string>& given) {
  bool places_are_given = tandem::parallel::launcher_variable() != nullptr;
  for (const std::string& argument : given) {
    const std::string flag = flag_of(argument);
    places_are_given = places_are_given || kPlaces.contains(flag);
    if (flag.starts_with('-') && !kChangeable.contains(flag) && !kPlaces.contains(flag)) {
      throw CLI::ValidationError(cli::shown(flag),
                                 "is not for --resume: the run keeps what it began with; leave it out, or begin a "
                                 "new run");
    }
  }
  std::vector<std::string> before;
  for (const tandem::telemetry::Field& field : tandem::telemetry::read_json(folder + "/config.json")) {
    if (const auto* list = std::get_if<std::vector<std::string>>(&field.value); list && field.name == "arguments") {
      std::copy_if(list->begin(), list->end(), std::back_inserter(before), [&](const std::string& argument) {
        return !places_are_given || !kPlaces.contains(flag_of(argument));
      });
    }
  }
  return before;
}

}  // namespace

std::optional<int> parse(CLI::App& app, CommonOptions& options, int argc, const char* const* argv) {
  std::vector<std::string> given(argv + 1, argv + argc);
  if (const std::string folder = resumed_folder(given); !folder.empty()) {
    try {
      const std::vector<std::string> before = arguments_of(folder, given);
      given.insert(given.begin(), before.begin(), before.end());
    } catch (const std::exception& error) {  // ValidationError, IoError
      narrate(fmt::format("error: {}", cli::shown(error.what(), 1000)));
      return 2;
    }
  }
  std::vector<const char*> all{argv[0]};
  for (const std::string& argument : given) {
    all.push_back(argument.c_str());
  }
  const std::optional<int> code = cli::parse(app, static_cast<int>(all.size()), all.data());
  for (const CLI::Option* option : app.get_options()) {
    const std::string flag = option->get_name();
    if (option->count() > 0 && !kNotTakenOver.contains(flag)) {
      options.arguments.push_back(option->get_type_size() == 0 ? flag : flag + "=" + option->results().back());
    }
  }
  return code;
}

void add_common_options(CLI::App& app, CommonOptions& options, const std::string& data) {
  add_path(app, "--data", data.c_str(), options.data);
  add_whole<std::int64_t>(app, "--epochs", "Passes over the training data", options.epochs, 1, kMaxCount);
  add_whole<std::int64_t>(app, "--batch-size", "Samples in one training step; with ddp, of each rank",
                          options.batch_size, 1, kMaxCount);
  add_value(app, "--lr", "RATE", "Learning rate", fmt::format("{}", options.lr), [&options](const std::string& text) {
    options.lr = read_number("--lr", text, 0, std::numeric_limits<double>::infinity(), true);
  });
  add_choice(app, "--optimizer", "adam, adamw or sgd", options.optimizer, {"adam", "adamw", "sgd"});
  add_value(app, "--hidden", "N,N,...", "Sizes of the hidden layers", fmt::format("{}", fmt::join(options.hidden, ",")),
            [&options](const std::string& text) { options.hidden = read_hidden(text); });
  add_value(app, "--device", "NAME", "cpu, cpu:1, cuda, cuda:0", options.device, [&options](const std::string& text) {
    check_device("--device", text);
    options.device = text;
  });
  add_choice(app, "--parallel",
             "none; dp: one process, a replica of the model on each of --devices; ddp: ranks that share the data, "
             "which tandem run starts, or --ranks (then the default)",
             options.parallel, {"none", "dp", "ddp"});
  add_value(app, "--devices", "NAME,NAME,...",
            "cpu:0,cpu:1 or cuda:0,cuda:1; when not given, dp takes all GPUs. With ddp: one for each rank of this host",
            "", [&options](const std::string& text) { options.devices = read_devices(text); });
  add_whole(app, "--ranks", "Threads of this process as ddp's ranks; 0: what tandem run started", options.ranks, 0, 64);
  add_whole(app, "--threads", "Compute threads; 0: TANDEM_NUM_THREADS, else all cores", options.threads, 0, 256);
  add_whole<std::uint64_t>(app, "--seed", "Start of the random numbers: the same seed gives the same run", options.seed,
                           0, std::numeric_limits<std::int64_t>::max());
  add_path(app, "--out", "Run folder, new or empty; when not given, one under runs/", options.out);
  add_path(app, "--resume", "Run folder of a run that goes on where it stopped, with its own options", options.resume);
  add_whole<std::int64_t>(app, "--checkpoint-every", "Steps between two checkpoints; 0: only at the end and at Ctrl-C",
                          options.checkpoint_every, 0, kMaxCount);
  add_precision(app, options.precision);
  add_choice(app, "--shard",
             "none; optimizer: ddp's ranks share out the optimizer's state and work; gradients, parameters: their "
             "memory, too",
             options.shard, {"none", "optimizer", "gradients", "parameters"});
  app.add_flag("--captured", options.captured, "Record the training step and replay it: the same numbers, sooner");
  app.add_flag("--report", options.report,
               "Say where the time of the last epoch's steps went and what would save it; draw it in report.html, and "
               "write trace.json for https://ui.perfetto.dev");
  app.add_flag("--json", options.json, "End stdout with the results as one line of JSON");
  app.add_flag("--quiet", options.quiet, "No progress on stderr");
  app.parse_complete_callback([&app, &options] {
    choose_parallel(app, options);
    settle_devices(app, options);
  });
}

void add_learning_options(CLI::App& app, PlainOptions& options, const std::string& data, const std::string& lr) {
  const bool has_data = !data.empty();
  if (has_data) {
    add_path(app, "--data", data.c_str(), options.data);
  }
  add_whole<std::int64_t>(app, "--epochs", has_data ? "Passes over the training images" : "Number of epochs",
                          options.epochs, 1, kMaxCount);
  add_whole<std::int64_t>(app, "--batch-size", has_data ? "Images of a step" : "Points of a step", options.batch_size,
                          1, kMaxCount);
  add_number(app, "--lr", "RATE", lr.c_str(), options.lr, 0, 1);
  add_whole<std::int64_t>(app, "--seed", "Seed of all random numbers", options.seed, 0,
                          std::numeric_limits<std::int64_t>::max());
  add_whole<int>(app, "--threads", "Threads; 0: all cores", options.threads, 0, 256);
  app.add_flag("--quiet", options.quiet, "No progress");
}

void add_plain_options(CLI::App& app, PlainOptions& options, const std::string& data, const std::string& lr) {
  add_learning_options(app, options, data, lr);
  const std::string out =
      fmt::format("Run folder; when not given, runs/{}-TIME. An earlier run there goes on", app.get_name());
  add_path(app, "--out", out.c_str(), options.out);
  app.add_flag("--json", options.json, "Print one JSON object as the last line");
}

std::optional<int> parse(CLI::App& app, PlainOptions& options, int argc, const char* const* argv) {
  const std::optional<int> code = cli::parse(app, argc, argv);
  if (options.threads > 0) {
    tandem::set_num_threads(options.threads);
  }
  tandem::manual_seed(static_cast<std::uint64_t>(options.seed));
  return code;
}

}  // namespace example
