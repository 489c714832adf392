#include <tandem/core/system_limits.h>

#include <cerrno>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>

#include <sys/resource.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/core/error.h>

#include "support/message.h"

namespace tandem::core {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::system_error error_of(int code) { return {code, std::generic_category(), "socket"}; }

TEST(SystemLimits, AreNamedAfterTheMessagesAboutThem) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_THAT(system_message(EMFILE), StartsWith("Too many open files: the process may have " +
                                                 std::to_string(limit.rlim_cur) + " (ulimit -n); "));
  EXPECT_THAT(system_message(EAGAIN), StartsWith("Resource temporarily unavailable: "));
  EXPECT_THAT(system_message(ENOMEM), StartsWith("Cannot allocate memory: "));
  EXPECT_EQ(system_message(ENOENT), "No such file or directory");
}

TEST(SystemLimits, AreFoundInExceptions) {
  EXPECT_EQ(shortage_in(std::bad_alloc()), ENOMEM);
  EXPECT_EQ(shortage_in(error_of(EMFILE)), EMFILE);
  EXPECT_EQ(shortage_in(error_of(EAGAIN)), EAGAIN);
  EXPECT_EQ(shortage_in(error_of(ECONNREFUSED)), 0);
  EXPECT_EQ(shortage_in(std::runtime_error("[enforce fail at pair.cc:9] rv != -1. Too many open files")), EMFILE);
  EXPECT_EQ(shortage_in(std::runtime_error("read: Resource temporarily unavailable")), 0) << "of a socket";
  EXPECT_EQ(shortage_in(IoError(message_of<IoError>([] { fail_thread("tests", EAGAIN); }))), EAGAIN);
}

TEST(SystemLimits, ExplainExceptionsOfTheStandardLibrary) {
  EXPECT_THAT(explain(error_of(EMFILE)), StartsWith("socket: Too many open files: the process may have "));
  EXPECT_THAT(explain(std::bad_alloc()), StartsWith("std::bad_alloc: Cannot allocate memory: "));
  EXPECT_EQ(explain(std::runtime_error("the disk is full")), "the disk is full");
  EXPECT_EQ(explain(IoError("Too many open files")), "Too many open files") << "an Error says it all itself";
}

TEST(SystemLimits, MemoryIsThatOfTheTightestLimit) {
  EXPECT_GT(free_memory(), 1U << 20);
  EXPECT_LE(free_memory(), static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                               static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)));
}

}  // namespace
}  // namespace tandem::core
