#include <tandem/parallel/launch/rank_environment.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <unistd.h>

#include <fmt/format.h>

#include <tandem/core/cores.h>
#include <tandem/parallel/rendezvous/job_token.h>

namespace tandem::inline v0::parallel {

int threads_per_rank(int ranks) {
  return process_environment("TANDEM_NUM_THREADS") ? 0 : std::clamp(core::available_cores() / ranks, 1, 256);
}

std::vector<std::string> rank_environment(const LaunchOptions& options, const JobFacts& job, int local) {
  const auto text = [](int number) { return std::to_string(number); };
  std::map<std::string, std::string> ours{
      {"RANK", text(options.node * options.ranks + local)},
      {"WORLD_SIZE", text(options.nodes * options.ranks)},
      {"LOCAL_RANK", text(local)},
      {"LOCAL_WORLD_SIZE", text(options.ranks)},
      {"GROUP_RANK", text(options.node)},
      {"GROUP_WORLD_SIZE", text(options.nodes)},
      {"MASTER_ADDR", job.address},
      {"MASTER_PORT", text(job.port)},
      {"TORCHELASTIC_RESTART_COUNT", text(job.attempt)},
      {"TORCHELASTIC_MAX_RESTARTS", text(options.max_restarts)},
      {"TORCHELASTIC_RUN_ID", job.run_id},
      {"TANDEM_JOB_TOKEN", job.token},
      {"TANDEM_STORE_HOSTED", "1"},
  };
  if (!options.identity_prefix.empty()) {
    std::map<std::string, std::string> hidden;
    for (const auto& [name, value] : ours) {
      hidden[options.identity_prefix + name] = value;
    }
    ours = std::move(hidden);
  }
  if (job.threads > 0) {
    ours["TANDEM_NUM_THREADS"] = text(job.threads);
  }
  for (const std::string& variable : options.variables) {
    const std::size_t equals = variable.find('=');
    ours[variable.substr(0, equals)] = equals == std::string::npos ? "" : variable.substr(equals + 1);
  }
  // Of a launcher around us, or of the file that the token came from: they would contradict ours.
  const std::set<std::string> foreign{"TANDEM_JOB_TOKEN_FILE", "TANDEM_STORE_PORT", "TORCHELASTIC_USE_AGENT_STORE"};
  std::vector<std::string> all;
  for (char** entry = ::environ; *entry != nullptr; ++entry) {
    const std::string variable = *entry;
    const std::string name = variable.substr(0, variable.find('='));
    if (!ours.contains(name) && !foreign.contains(name)) {
      all.push_back(variable);
    }
  }
  for (const auto& [name, value] : ours) {
    all.push_back(fmt::format("{}={}", name, value));
  }
  return all;
}

}  // namespace tandem::inline v0::parallel
