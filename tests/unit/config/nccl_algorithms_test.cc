#include "config/nccl_algorithms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::config {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Case {
  const char *algo, *proto, *sym_kernel, *reason;  // `reason` null: CollNet is permitted
};

class CollNetExclusion : public ::testing::TestWithParam<Case> {};

TEST_P(CollNetExclusion, FollowsNccl) {
  const Case& c = GetParam();
  const std::string reason = collnet_exclusion({c.algo, c.proto, c.sym_kernel});
  if (c.reason == nullptr) {
    EXPECT_THAT(reason, IsEmpty());
  } else {
    EXPECT_THAT(reason, HasSubstr(c.reason));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Lists, CollNetExclusion,
    ::testing::Values(
        Case{"", "", "", nullptr}, Case{"collnetchain", "", "", nullptr},
        Case{"Ring,CollNetDirect", "", "", nullptr}, Case{"^ring,tree", "", "", nullptr},
        Case{"^collnetchain", "", "", nullptr}, Case{"RING", "", "", "NCCL_ALGO=RING excludes CollNet"},
        Case{"ring,tree", "", "", "excludes CollNet for allreduce; add collnetdirect and collnetchain"},
        Case{"^collnetdirect,collnetchain", "", "", "excludes CollNet"}, Case{",,", "", "", nullptr},
        Case{"rings", "", "", "NCCL_ALGO=rings: unknown name \"rings\""}, Case{"", "Simple", "", nullptr},
        Case{"", "ll,simple", "", nullptr}, Case{"", "^LL128", "", nullptr},
        Case{"", "LL,LL128", "", "NCCL_PROTO=LL,LL128 excludes Simple"},
        Case{"", "^Simple", "", "NCCL_PROTO=^Simple excludes Simple"},
        Case{"", "Simples", "", "NCCL_PROTO=Simples: unknown name"}));

INSTANTIATE_TEST_SUITE_P(
    ListsOfFunctions, CollNetExclusion,
    ::testing::Values(Case{"ring,tree;allreduce:collnetchain", "", "", nullptr},
                      Case{"allreduce:collnetchain", "", "", nullptr},
                      Case{"AllReduce:^ring", "", "", nullptr}, Case{"broadcast:ring", "", "", nullptr},
                      Case{"collnetchain;allreduce:ring", "", "", "excludes CollNet for allreduce"},
                      Case{"ring;broadcast:collnetchain", "", "", "excludes CollNet for allreduce"},
                      Case{"allreduce:ring;allreduce:collnetdirect", "", "", nullptr},
                      Case{"allreduce:ring;tree", "", "", "\"tree\" has no function"},
                      Case{"reduceall:ring", "", "", "unknown function \"reduceall\""},
                      Case{"allreduce:", "", "", "unknown name \"allreduce\""},
                      Case{"", "LL;allreduce:Simple", "", nullptr},
                      Case{"", "Simple;allreduce:LL", "", "excludes Simple"}));

// From 2.31 on, a variable that limits allreduce leaves it only what NCCL_ALGO names.
INSTANTIATE_TEST_SUITE_P(
    SeveralVariables, CollNetExclusion,
    ::testing::Values(Case{"broadcast:ring", "Simple", "", "for which NCCL_ALGO names nothing: NCCL 2.31"},
                      Case{"broadcast:ring", "broadcast:Simple", "", nullptr},
                      Case{"broadcast:ring;allreduce:collnetchain", "Simple", "", nullptr},
                      Case{"", "", "AllGather_LL", "NCCL_SYM_KERNEL=AllGather_LL leaves allreduce no other"},
                      Case{"", "", "allgather:AllGather_LL", nullptr},
                      Case{"", "Simple", "allgather:AllGather_LL", "for which NCCL_SYM_KERNEL names nothing"},
                      Case{"collnetchain", "Simple", "AllGather_LL", nullptr}));

TEST(NcclAlgorithms, ListsOfFunctionsNeedNccl224) {
  EXPECT_FALSE(needs_nccl_2_24({"ring,collnetchain", "^LL", ""}));
  EXPECT_TRUE(needs_nccl_2_24({"allreduce:collnetchain", "", ""}));
  EXPECT_TRUE(needs_nccl_2_24({"", "LL;allreduce:Simple", ""}));
}

}  // namespace
}  // namespace sluice::config
