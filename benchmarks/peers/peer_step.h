#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "step/clock.h"

// What the C++ peers of step_bench share: its flags, the files that `step_bench --export` wrote, measuring, and one
// line of JSON. Independent of tandem.

namespace peer {

using Flags = std::map<std::string, std::string>;

inline Flags read_flags(int argc, char** argv) {
  Flags flags{{"--loss", "ce"},     {"--momentum", "0"}, {"--threads", "1"},      {"--blocks", "30"},
              {"--block-ms", "20"}, {"--lr", "0"},       {"--check-steps", "50"}, {"--setting", "default"}};
  for (int i = 1; i + 1 < argc; i += 2) {
    flags[argv[i]] = argv[i + 1];
  }
  for (const char* name : {"--data", "--model", "--batch", "--optimizer"}) {
    if (!flags.contains(name)) {
      throw std::runtime_error(std::string(name) +
                               ": a value is needed; the flags are those of step_bench, and --data");
    }
  }
  return flags;
}

/// Copies the `size` bytes of an array in NPY format 1.0, which are the last ones of its file.
inline void load(const std::string& path, void* data, std::size_t size) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (bytes.size() < 10 + size) {
    throw std::runtime_error(path + ": too short for its shape, or not there");
  }
  std::memcpy(data, bytes.data() + bytes.size() - size, size);
}

/// The widths of a model: {784, 512, 10} for "784-512-10".
inline std::vector<std::int64_t> sizes_of(const std::string& model) {
  std::vector<std::int64_t> sizes;
  for (std::size_t at = 0; at <= model.size();) {
    const std::size_t end = std::min(model.find('-', at), model.size());
    sizes.push_back(std::stoll(model.substr(at, end - at)));
    at = end + 1;
  }
  return sizes;
}

inline double rate_of(const Flags& flags) {
  const double rate = std::stod(flags.at("--lr"));
  return rate > 0 ? rate : flags.at("--optimizer") == "adam" ? 1e-4 : 1e-3;
}

/// Times blocks of equal steps and prints their median. `Training` has void run(steps) and double loss(), the loss of
/// the last step before its update.
template <class Training>
void measure(const Flags& flags, Training& training, const char* engine, const char* version) {
  const bool one_thread = flags.at("--threads") == "1";
  const auto seconds_of = [&](std::int64_t steps) {
    const double start = bench::now(one_thread);
    training.run(steps);
    return bench::now(one_thread) - start;
  };
  const std::int64_t check_steps = std::stoll(flags.at("--check-steps"));
  training.run(check_steps);
  const double loss = training.loss();
  const double block = std::stod(flags.at("--block-ms")) * 1e-3;
  std::int64_t steps = 1;
  double seconds = seconds_of(steps);
  while (seconds < block / 10) {
    steps *= 4;
    seconds = seconds_of(steps);
  }
  steps = std::max<std::int64_t>(1, std::llround(static_cast<double>(steps) * block / seconds));
  const std::size_t blocks = std::stoull(flags.at("--blocks"));
  std::vector<std::pair<double, double>> samples;  // share of time that our threads waited; seconds per step
  std::size_t clean = 0;
  while (clean < blocks && samples.size() < 4 * blocks) {
    const double waited = bench::waited_seconds();
    const double time = seconds_of(steps);
    samples.emplace_back((bench::waited_seconds() - waited) / time, time / static_cast<double>(steps));
    clean += samples.back().first < 0.01 ? 1 : 0;
  }
  std::sort(samples.begin(), samples.end());
  samples.resize(blocks);
  std::vector<double> times;
  std::size_t disturbed = 0;
  for (const auto& [share, time] : samples) {
    times.push_back(time);
    disturbed += share >= 0.01 ? 1 : 0;
  }
  std::sort(times.begin(), times.end());
  const double median = (times[(blocks - 1) / 2] + times[blocks / 2]) / 2;
  std::printf(
      "{\"engine\":\"%s\",\"setting\":\"%s\",\"version\":\"%s\",\"model\":\"%s\",\"loss\":\"%s\",\"batch\":%s,"
      "\"optimizer\":\"%s\",\"momentum\":%s,\"threads\":%s,\"us_per_step\":%.9g,\"blocks\":%zu,\"disturbed\":%zu,"
      "\"check_steps\":%lld,\"loss_after_steps\":%.9g}\n",
      engine, flags.at("--setting").c_str(), version, flags.at("--model").c_str(), flags.at("--loss").c_str(),
      flags.at("--batch").c_str(), flags.at("--optimizer").c_str(), flags.at("--momentum").c_str(),
      flags.at("--threads").c_str(), median * 1e6, blocks, disturbed, static_cast<long long>(check_steps), loss);
}

/// The main function of a peer: measures what `run` builds from the flags.
template <class Run>
int run_main(int argc, char** argv, Run run) {
  try {
    run(read_flags(argc, argv));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
  return 0;
}

}  // namespace peer
