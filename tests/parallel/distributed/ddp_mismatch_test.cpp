#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "parallel/models.h"
#include "parallel/ranks.h"

// Ranks that train in different ways read which wrapper, which parameters, which call of the loop differ, and the
// remedy.

namespace tandem::test {
namespace {

using parallel::DistributedDataParallel;
using parallel::ProcessGroup;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kOrder =
    "All ranks call backward() through the same wrappers in the same order; with unequal numbers of batches they need "
    "a Join";

std::vector<std::string> texts_of(int ranks, const std::function<void(ProcessGroup&)>& body) {
  std::vector<std::string> texts;
  for (const CommError& error : comm_errors(ranks, body)) {
    texts.emplace_back(error.what());
  }
  return texts;
}

void step(DistributedDataParallel<Mlp>& ddp) { ddp(batch_of(2).x).sum().backward(); }

TEST(DdpMismatch, OfABarrierAfterUnequalBatchesNamesBoth) {
  for (const std::string& text : texts_of(2, [](ProcessGroup& group) {
         Mlp model = seeded();
         DistributedDataParallel ddp(model);
         for (int batch = 0; batch < 3 - group.rank(); ++batch) {
           step(ddp);
         }
         group.barrier();
         group.barrier();
       })) {
    EXPECT_THAT(text, AllOf(HasSubstr(", bucket 0 of 1, 'fc3.bias' to 'fc1.weight' of DistributedDataParallel #0; "
                                      "rank 1: barrier (#"),
                            HasSubstr(kOrder)));
  }
}

TEST(DdpMismatch, OfAHookOnOneRankNamesTheHook) {
  for (const std::string& text : texts_of(2, [](ProcessGroup& group) {
         Mlp model = seeded();
         DistributedDataParallel ddp(model, {.bucket_cap_mb = 0.0});
         if (group.rank() == 1) {
           ddp.register_comm_hook(parallel::bf16_compress_hook());
         }
         step(ddp);
       })) {
    EXPECT_THAT(text, AllOf(HasSubstr(", bucket 0 of 6, 'fc3.bias' of DistributedDataParallel #0; rank 1: "),
                            HasSubstr(", before the comm hook of DistributedDataParallel #0. "),
                            HasSubstr("A hook is registered on all ranks or on none")));
  }
}

TEST(DdpMismatch, OfTheOrderOfWrappersNamesBoth) {
  for (const std::string& text : texts_of(2, [](ProcessGroup& group) {
         Mlp critic = seeded();
         Mlp generator = seeded();
         DistributedDataParallel first(critic);
         DistributedDataParallel second(generator);
         step(group.rank() == 0 ? first : second);
         step(group.rank() == 0 ? second : first);
       })) {
    EXPECT_THAT(text, AllOf(HasSubstr("'fc3.bias' to 'fc1.weight' of DistributedDataParallel #0; rank 1: "),
                            HasSubstr("of DistributedDataParallel #1. "), HasSubstr(kOrder)));
  }
}

TEST(DdpMismatch, OfARankWithoutAJoinSaysSoOnBoth) {
  for (const std::string& text : texts_of(2, [](ProcessGroup& group) {
         Mlp model = seeded();
         DistributedDataParallel ddp(model);
         parallel::Join join(ddp);
         if (group.rank() == 0) {
           group.all_reduce(ones({3}));
         } else {
           step(ddp);
         }
         join.finish([] {});
       })) {
    EXPECT_THAT(text,
                AllOf(HasSubstr("rank 0: all_reduce f32 [3] sum (#"), HasSubstr(", a Join's record of who has input"),
                      HasSubstr("Join: all ranks must be in one, with the same wrappers")));
  }
}

}  // namespace
}  // namespace tandem::test
