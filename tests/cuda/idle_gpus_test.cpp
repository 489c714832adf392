#include <cstdio>
#include <cstdlib>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/tandem.h>

// Tests of the warning about idle GPUs. Each case is a process of its own, because the warning appears once per
// process.

namespace tandem {
namespace {

class IdleGpusOfAProcess : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() < 2) {
      GTEST_SKIP() << "there are " << cuda::device_count() << " GPUs, this needs 2";
    }
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
};

// Trains for 200 steps and exits with the number of warnings.
[[noreturn]] void train(bool beside, bool ranked, bool captured) {
  static int warnings = 0;
  set_warning_handler([](const std::string& text) {
    ++warnings;
    std::fprintf(stderr, "%s\n", text.c_str());
  });
  const Tensor elsewhere = beside ? zeros({1}, {.device = Device("cuda:1")}) : Tensor();
  const auto body = [&] {
    nn::Linear model(2, 1);
    model.to("cuda:0");
    optim::SGD sgd(model.parameters(), {.lr = 0.01});
    const Tensor x = ones({4, 2}, {.device = Device("cuda:0")});
    const auto step = [&] {
      sgd.zero_grad();
      Tensor loss = model(x).mean();
      loss.backward();
      sgd.step();
      return loss;
    };
    auto captured_step = graph::capture(step);
    for (int i = 0; i < 200; ++i) {
      captured ? captured_step() : step();
    }
  };
  if (ranked) {
    parallel::spawn(1, [&](parallel::ProcessGroup&) { body(); });
  } else {
    body();
  }
  std::exit(warnings);
}

TEST_F(IdleGpusOfAProcess, AreNamedOnce) {
  const ::testing::Matcher<const std::string&> text =
      ::testing::HasSubstr("GPUs are visible, and after 100 steps nothing has used cuda:1");
  EXPECT_EXIT(train(false, false, false), ::testing::ExitedWithCode(1), text);
  EXPECT_EXIT(train(false, false, true), ::testing::ExitedWithCode(1), text) << "captured";
}

TEST_F(IdleGpusOfAProcess, AreLeftAloneWhereSomethingUsesThemOrRanksAreThere) {
  if (cuda::device_count() > 2) {
    GTEST_SKIP() << "of more than 2 GPUs others are idle";
  }
  EXPECT_EXIT(train(true, false, false), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(train(false, true, false), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace tandem
