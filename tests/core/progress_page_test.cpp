#include <cstdlib>
#include <string>

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <tandem/core/progress_page.h>
#include <tandem/core/span.h>

namespace tandem {
namespace {

// Runs `work` in a child that inherits the page, and ends the child in its midst.
template <class Work>
std::string progress_of(const Work& work) {
  const core::SharedProgress progress;
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv(core::kProgressVariable, std::to_string(progress.descriptor()).c_str(), 1);
    core::join_progress_page();
    work();
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  return progress.text();
}

TEST(ProgressPage, TellsTheLauncherWhereAProcessHasEnded) {
  EXPECT_EQ(progress_of([] {}), "");
  EXPECT_EQ(progress_of([] { core::note_update(); }), " after 1 update");
  EXPECT_EQ(progress_of([] {
              for (int i = 0; i < 3; ++i) {
                core::note_update();
              }
              const SpanScope backward(Phase::backward);
              {
                const SpanScope inner(Phase::reduce);
              }
              ::_exit(0);
            }),
            " after 3 updates, in its backward pass");
  EXPECT_EQ(progress_of([] {
              core::note_update();
              core::progress_page.load()->run_step = 406;
              const SpanScope collective(Phase::collective);
              ::_exit(0);
            }),
            " after step 406, in a collective");
  EXPECT_EQ(progress_of([] { core::progress_page.load()->phase = 1'000; }), "") << "a process may write anything";
}

TEST(ProgressPage, IsNotJoinedWhereTheVariableIsALeftover) {
  for (const char* value : {"", "x", "-1", "1", "1000"}) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::setenv(core::kProgressVariable, value, 1);
      core::join_progress_page();
      core::note_update();
      ::_exit(core::progress_page.load() == nullptr ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0) << value;
  }
}

}  // namespace
}  // namespace tandem
