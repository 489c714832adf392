#include <csignal>

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <tandem/core/failpoint.h>

// The plan is read once in a process, and the children inherit what this process has read. This program, which has no
// other test, reads none.

namespace tandem {
namespace {

// How a child ends that passes the failpoint "step" three times, each time after "bucket".
int status_with(const char* plan, const char* restarts = "0") {
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("TANDEM_FAILPOINT", plan, 1);
    ::setenv("TORCHELASTIC_RESTART_COUNT", restarts, 1);
    for (int i = 1; i <= 3; ++i) {
      core::failpoint("bucket");
      core::failpoint("step");
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

TEST(Failpoint, EndsTheProcessAtItsVisit) {
  EXPECT_EQ(status_with("step:3"), -SIGKILL);
  EXPECT_EQ(status_with("step:4"), 0);
  EXPECT_EQ(status_with("meet:1"), 0);
  EXPECT_EQ(status_with("step:1", "1"), 0) << "a job that was restarted";
  for (const char* wrong : {"", "step", "step:", "step:0", "step:-1", "step:1x", "steps:1", ":1"}) {
    EXPECT_EQ(status_with(wrong), 0) << wrong;  // after a warning
  }
}

}  // namespace
}  // namespace tandem
