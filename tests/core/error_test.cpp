#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/core/check.h>
#include <tandem/core/error.h>

#include "support/message.h"

namespace tandem {
namespace {

using test::message_of;
using ::testing::EndsWith;

template <class E>
class EveryError : public ::testing::Test {};
using Errors = ::testing::Types<Error, ShapeError, DTypeError, DeviceError, AutogradError, OutOfMemory, IoError,
                                ConfigError, ValueError>;
TYPED_TEST_SUITE(EveryError, Errors);

TYPED_TEST(EveryError, IsAStandardExceptionWithTheMessage) {
  try {
    throw TypeParam("add: wrong");
  } catch (const std::exception& error) {
    EXPECT_STREQ(error.what(), "add: wrong");
  }
}

TYPED_TEST(EveryError, KeepsItsTypeWhenContextIsAddedOnTheWayUp) {
  const auto load = [] {
    try {
      throw TypeParam("row 3 is short");
    } catch (Error& error) {
      error.add_context("while loading 'a.csv'");
      throw;
    }
  };
  EXPECT_EQ(message_of<TypeParam>(load), "row 3 is short\n  while loading 'a.csv'");
}

TYPED_TEST(EveryError, IsCopiedWithoutThrowing) {
  // Throwing while an exception is thrown would end the program.
  EXPECT_TRUE(std::is_nothrow_copy_constructible_v<TypeParam>);
  EXPECT_TRUE(std::is_nothrow_copy_assignable_v<TypeParam>);
}

TEST(CommError, KeepsItsDetailsAndIsCopiedWithoutThrowing) {
  EXPECT_TRUE(std::is_nothrow_copy_constructible_v<CommError>);
  CommError error("barrier (#2): rank 1 is lost", {.fault = CommFault::peer_lost, .rank = 1, .sequence = 2});
  const CommError copy = error;
  error.add_context("in rank 0 of 2");
  EXPECT_STREQ(copy.what(), "barrier (#2): rank 1 is lost");
  EXPECT_STREQ(error.what(), "barrier (#2): rank 1 is lost\n  in rank 0 of 2");
  EXPECT_EQ(copy.details().rank, 1);
  EXPECT_EQ(copy.details().sequence, 2);
  EXPECT_EQ(copy.details().bytes, -1);
}

TEST(CommError, NamesItsFaults) {
  EXPECT_EQ(name(CommFault::peer_lost), "peer_lost");
  EXPECT_EQ(name(CommFault::timeout), "timeout");
  EXPECT_EQ(name(CommFault::mismatch), "mismatch");
  EXPECT_EQ(name(CommFault::aborted), "aborted");
  EXPECT_EQ(name(CommFault::init), "init");
}

TEST(Error, ContextIsAppendedInOrder) {
  Error error("bottom");
  error.add_context("inner").add_context("outer");
  EXPECT_STREQ(error.what(), "bottom\n  inner\n  outer");
}

TEST(Error, ContextLeavesCopiesUnchanged) {
  Error original("bottom");
  const Error before = original;
  original.add_context("first");
  Error between = original;
  original.add_context("second");
  EXPECT_STREQ(before.what(), "bottom");
  EXPECT_STREQ(between.what(), "bottom\n  first");
  between.add_context("other");
  EXPECT_STREQ(original.what(), "bottom\n  first\n  second");
  EXPECT_STREQ(between.what(), "bottom\n  first\n  other");
}

TEST(Error, StillSpeaksAfterItWasMovedFrom) {
  Error original("text");
  const Error moved = std::move(original);
  EXPECT_STREQ(moved.what(), "text");
  EXPECT_NE(original.what(), nullptr);  // NOLINT(bugprone-use-after-move)
  original.add_context("more");
  EXPECT_STREQ(moved.what(), "text");
}

TEST(Error, EmptyMessageAndEmptyContextAreAllowed) {
  Error error("");
  EXPECT_STREQ(error.what(), "");
  error.add_context("");
  EXPECT_STREQ(error.what(), "\n  ");
}

TEST(Error, KnowsWhereItWasThrown) {
  const auto line = static_cast<std::uint32_t>(__LINE__) + 2;
  try {
    throw ShapeError("here");
  } catch (const Error& error) {
    EXPECT_EQ(error.where().line(), line);
    EXPECT_THAT(error.where().file_name(), EndsWith("error_test.cpp"));
  }
}

TEST(Check, PassesInSilence) { EXPECT_NO_THROW(check<ShapeError>(true, "{} {}", 1, "two")); }

TEST(Check, ThrowsTheFormattedMessageOfTheWantedType) {
  EXPECT_EQ(message_of<DTypeError>([] { check<DTypeError>(1 > 2, "op: {} is not {:.2f}", "this", 0.5); }),
            "op: this is not 0.50");
}

TEST(Check, RemembersTheCallSite) {
  const auto line = static_cast<std::uint32_t>(__LINE__) + 2;
  try {
    check<ConfigError>(false, "no arguments");
  } catch (const Error& error) {
    EXPECT_EQ(error.where().line(), line);
    EXPECT_THAT(error.where().file_name(), EndsWith("error_test.cpp"));
  }
}

TEST(Check, EvaluatesAndKeepsMoveOnlyAndTemporaryArguments) {
  EXPECT_EQ(message_of<IoError>([] { check<IoError>(false, "{}:{}", std::string("file"), std::string_view("7")); }),
            "file:7");
}

TEST(Fail, AlwaysThrows) {
  EXPECT_EQ(message_of<ValueError>([] { fail<ValueError>("row {}", 7); }), "row 7");
}

TEST(ErrorInFlight, IsWhatLeavesTheScope) {
  struct Scope {
    std::string& text;
    ~Scope() { text = core::error_in_flight(); }
  };
  std::string text = "none";
  const auto leave = [&](const auto& how) {
    try {
      const Scope scope{text};
      how();
    } catch (const std::exception&) {
    }
    return text;
  };
  EXPECT_EQ(leave([] {}), "");
  EXPECT_EQ(leave([] { fail<ValueError>("row {}", 7); }), "row 7");
  EXPECT_EQ(leave([] { throw std::runtime_error("another kind"); }), "") << "and not that of an earlier error";
  EXPECT_EQ(leave([] {
              try {
                fail<ValueError>("row {}", 8);
              } catch (Error& error) {
                error.add_context("in a file");
                throw;
              }
            }),
            "row 8\n  in a file");
}

}  // namespace
}  // namespace tandem
