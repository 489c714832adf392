#include "property.h"

#include <cstdlib>
#include <functional>
#include <numeric>
#include <sstream>

#include <gtest/gtest.h>

#include <tandem/core/thread_state.h>

namespace tandem::test {

namespace {

#ifdef TANDEM_FEWER_CASES
constexpr int kShare = 5;
#else
constexpr int kShare = 1;
#endif

int number_of_cases(int cases) {
  constexpr int kShareOnGpu = 25;  // launches are slow, especially on an emulated GPU
  const bool gpu = core::thread_state().device.type == DeviceType::cuda;
  const char* number = std::getenv("TANDEM_PROPERTY_CASES");
  return number != nullptr ? std::stoi(number) : cases / (gpu ? kShareOnGpu : kShare);
}

}  // namespace

void run_property(int cases, const rc::detail::Property& property) {
  const ::testing::TestInfo* test = ::testing::UnitTest::GetInstance()->current_test_info();
  const rc::detail::TestMetadata metadata{std::string(test->test_suite_name()) + "/" + test->name(), test->name()};
  const rc::detail::Configuration& configuration = rc::detail::configuration();
  rc::detail::TestParams params = configuration.testParams;
  params.maxSuccess = number_of_cases(cases);
  const char* given = std::getenv("RC_PARAMS");
  if (given == nullptr || std::string(given).find("seed=") == std::string::npos) {
    params.seed = std::hash<std::string>()(metadata.id);
  }
  const rc::detail::TestResult result = rc::detail::checkProperty(property, metadata, params);
  std::ostringstream text;
  rc::detail::printResultMessage(result, text);
  EXPECT_TRUE(result.is<rc::detail::SuccessResult>()) << text.str() << "\nseed " << params.seed;
}

std::vector<int> pick_order(int count) {
  std::vector<int> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = order.size(); i > 1; --i) {
    const std::int64_t last = static_cast<std::int64_t>(i) - 1;
    std::swap(order[i - 1], order[static_cast<std::size_t>(last - pick(0, last))]);
  }
  return order;
}

}  // namespace tandem::test
