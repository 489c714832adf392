#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <emulated_nccl.h>

#include <tandem/parallel/comm/threads/local_backend.h>
#include <tandem/tandem.h>

#include "cuda/gpu_test.h"

// Tests of a group when NCCL fails, on emulated GPUs.

namespace tandem::parallel {
namespace {

using emulated_nccl::Counts;
using emulated_nccl::Trouble;
using std::chrono::milliseconds;
using test::all_are;

// Two ranks over the emulated NCCL, each with a GPU. Counts start at the beginning of the test.
class NcclInTrouble : public ::testing::Test {
 protected:
  void SetUp() override {
    set_warning_handler([this](const std::string& text) {
      const std::lock_guard lock(mutex_);
      warnings_ += text + "\n";
    });
  }
  void TearDown() override {
    emulated_nccl::set_trouble(Trouble::none);
    set_warning_handler({});
    EXPECT_EQ(emulated_nccl::counts().misuses, before_.misuses);
  }

  template <class Body>
  static void as_ranks(const Body& body, milliseconds timeout = std::chrono::seconds(30)) {
    const auto shared = std::make_shared<LocalGroup>(std::make_shared<LocalWorld>(2), std::vector<int>{0, 1});
    spawn(2,
          [&](int rank) {
            ProcessGroup group(nccl_backend(std::make_unique<LocalBackend>(shared, rank), core::thread_state().device,
                                            {.timeout = timeout}),
                               {.timeout = timeout});
            body(group);
          },
          {.devices = {"cuda:0", "cuda:1"}});
  }
  // Returns the error that `body` throws. Expects it within five seconds.
  template <class Body>
  static CommError error_of(const Body& body) {
    const auto begin = std::chrono::steady_clock::now();
    CommError caught("nothing was thrown", {});
    try {
      body();
    } catch (const CommError& error) {
      caught = error;
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
    return caught;
  }
  int ended_by(int Counts::* count) const { return emulated_nccl::counts().*count - before_.*count; }
  std::string warnings() {
    const std::lock_guard lock(mutex_);
    return warnings_;
  }

  const Counts before_ = emulated_nccl::counts();

 private:
  std::mutex mutex_;
  std::string warnings_;
};

TEST_F(NcclInTrouble, WithoutAnyCommunicatorsAreDestroyedAndNotAborted) {
  as_ranks([](ProcessGroup& group) {
    const Tensor tensor = ones({100});
    group.all_reduce(tensor, ReduceOp::sum, true).wait();
    const std::unique_ptr<ProcessGroup> both = group.new_group({0, 1});
    both->all_reduce(tensor);
    EXPECT_TRUE(all_are(tensor, 4));
  });
  EXPECT_EQ(ended_by(&Counts::joined), 4);
  EXPECT_EQ(ended_by(&Counts::destroyed), 4);
  EXPECT_EQ(ended_by(&Counts::aborted), 0);
  EXPECT_EQ(ended_by(&Counts::collectives), 4);
}

TEST_F(NcclInTrouble, AJoinThatHangsEndsAtItsDeadline) {
  emulated_nccl::set_trouble(Trouble::join_hangs);
  const CommError error = error_of([] { as_ranks([](ProcessGroup&) {}, milliseconds(300)); });
  EXPECT_EQ(error.details().fault, CommFault::timeout) << error.what();
  EXPECT_EQ(ended_by(&Counts::aborted), 2);
}

TEST_F(NcclInTrouble, ACollectiveThatHangsIsEndedAtItsDeadlineOnEveryRank) {
  emulated_nccl::set_trouble(Trouble::collective_hangs);
  as_ranks(
      [](ProcessGroup& group) {
        const Tensor tensor = ones({100});
        Work work = group.all_reduce(tensor, ReduceOp::sum, true);
        work.wait();  // the host does not block
        EXPECT_FALSE(work.done());
        const CommError error = error_of([&] { group.wait_all(); });
        EXPECT_EQ(error.details().fault, CommFault::timeout) << error.what();
        EXPECT_NE(std::string(error.what()).find("is not through with it"), std::string::npos) << error.what();
        EXPECT_TRUE(work.done());
        const CommError later = error_of([&] { group.all_reduce(tensor); });
        EXPECT_NE(std::string(later.what()).find("can no longer be used"), std::string::npos) << later.what();
        cuda::synchronize(tensor.device());  // NCCL's kernel has ended
      },
      milliseconds(300));
  EXPECT_EQ(ended_by(&Counts::aborted), 2);
  EXPECT_EQ(ended_by(&Counts::destroyed), 0);
}

TEST_F(NcclInTrouble, AnErrorInTheBackgroundReachesEveryRank) {
  as_ranks([](ProcessGroup& group) {
    const Tensor tensor = ones({100});
    group.all_reduce(tensor);
    group.barrier();
    emulated_nccl::set_trouble(Trouble::async_error);
    const CommError error = error_of([&] {
      for (;;) {
        group.all_reduce(tensor);
      }
    });
    EXPECT_NE(std::string(error.what()).find("remote process exited"), std::string::npos) << error.what();
    cuda::synchronize(tensor.device());
  });
  EXPECT_EQ(ended_by(&Counts::aborted), 2);
}

TEST_F(NcclInTrouble, ACallThatIsRefusedEndsTheGroup) {
  emulated_nccl::set_trouble(Trouble::call_fails);
  as_ranks([](ProcessGroup& group) {
    const Tensor tensor = ones({100});
    const CommError error = error_of([&] { group.all_reduce(tensor); });
    EXPECT_EQ(error.details().fault, CommFault::aborted);
    EXPECT_NE(std::string(error.what()).find("NCCL: unhandled system error"), std::string::npos) << error.what();
  });
  EXPECT_EQ(ended_by(&Counts::aborted), 2);
}

TEST_F(NcclInTrouble, ARankThatLeavesByAnExceptionEndsWhatItsPeersGpuWaitsFor) {
  emulated_nccl::set_trouble(Trouble::collective_hangs);
  std::string text;
  try {
    as_ranks([](ProcessGroup& group) {
      const Tensor tensor = ones({100});
      group.all_reduce(tensor, ReduceOp::sum, true).wait();
      if (group.rank() == 1) {
        throw ValueError("the loss is not finite");
      }
      const CommError error = error_of([&] { group.wait_all(); });
      EXPECT_EQ(error.details().fault, CommFault::peer_lost) << error.what();
    });
  } catch (const ValueError& error) {
    text = error.what();
  }
  EXPECT_NE(text.find("the loss is not finite"), std::string::npos);
  EXPECT_EQ(ended_by(&Counts::aborted), 2);
}

TEST_F(NcclInTrouble, AnAbortThatHangsIsLeftAlone) {
  emulated_nccl::set_trouble(Trouble::abort_hangs);
  as_ranks(
      [](ProcessGroup& group) {
        group.all_reduce(ones({100}), ReduceOp::sum, true).wait();
        EXPECT_EQ(error_of([&] { group.wait_all(); }).details().fault, CommFault::timeout);
      },
      milliseconds(300));
  EXPECT_NE(warnings().find("NCCL has not come back from ncclCommAbort within 5 s"), std::string::npos) << warnings();
}

}  // namespace
}  // namespace tandem::parallel
