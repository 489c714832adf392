#pragma once

#include <cstdio>
#include <cstdlib>
#include <exception>

#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

// Helpers for tests in a forked child.

// The thread sanitizer supports no new threads in the child of a multithreaded process.
#if defined(__SANITIZE_THREAD__)
#define TANDEM_NEEDS_THREADS_IN_A_CHILD() GTEST_SKIP() << "the thread sanitizer does not have them"
#else
#define TANDEM_NEEDS_THREADS_IN_A_CHILD() static_cast<void>(0)
#endif

namespace tandem::test {

/// Runs `body` in a forked child and returns whether it returned true. A child that hangs is killed after 20 seconds.
template <class Body>
::testing::AssertionResult is_true_in_a_child(const Body& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    bool right = false;
    try {
      right = body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    std::_Exit(right ? 0 : 1);
  }
  int status = -1;
  if (waitpid(child, &status, 0) != child) {
    return ::testing::AssertionFailure() << "no child";
  }
  if (WIFSIGNALED(status)) {
    return ::testing::AssertionFailure() << "the child ended by signal " << WTERMSIG(status) << " (14: it hung)";
  }
  return WEXITSTATUS(status) == 0 ? ::testing::AssertionSuccess()
                                  : ::testing::AssertionFailure() << "false, or an exception, in the child";
}

}  // namespace tandem::test
