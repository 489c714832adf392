#include <tandem/core/failpoint.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/warning.h>

namespace tandem::inline v0::core {

namespace {

struct Plan {
  std::string name = {};
  int visit = 0;  // 0: no plan
};

Plan read_plan() {
  const char* variable = ::secure_getenv("TANDEM_FAILPOINT");
  const char* restarts = std::getenv("TORCHELASTIC_RESTART_COUNT");
  if (variable == nullptr || (restarts != nullptr && std::string_view(restarts) != "0")) {
    return {};
  }
  const std::string_view text = variable;
  const std::size_t colon = std::min(text.find(':'), text.size());
  Plan plan{.name = std::string(text.substr(0, colon))};
  const std::string_view number = text.substr(std::min(colon + 1, text.size()));
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), plan.visit);
  if (error == std::errc() && end == number.data() + number.size() && plan.visit > 0 &&
      std::find(kFailpoints.begin(), kFailpoints.end(), plan.name) != kFailpoints.end()) {
    warn(fmt::format("TANDEM_FAILPOINT: this process will kill itself at visit {} of '{}'", plan.visit, plan.name));
    return plan;
  }
  warn(fmt::format("TANDEM_FAILPOINT: expected <name>:<visit>, got '{}'; the names are {}", text,
                   fmt::join(kFailpoints, ", ")));
  return {};
}

}  // namespace

void failpoint(const char* name) noexcept {
  static const Plan plan = read_plan();
  static std::atomic<int> visits{0};
  if (plan.visit != 0 && plan.name == name && visits.fetch_add(1) + 1 == plan.visit) {
    std::raise(SIGKILL);
  }
}

}  // namespace tandem::inline v0::core
