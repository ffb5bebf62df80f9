#include "gpu_client/engine/base/member_names.h"

#include <gtest/gtest.h>

namespace sluice::engine {
namespace {

const MemberNames kNames(SessionId{}, 4, "rail 1", {1, 3, 14});

TEST(MemberNames, MembersBecomeRanksOfTheUser) {
  EXPECT_EQ(kNames.outward("rank 1 lost: control connection reset"), "rank 3 lost: control connection reset");
  EXPECT_EQ(kNames.outward("ranks 0, 2 did not join in time"), "ranks 1, 14 did not join in time");
  EXPECT_EQ(kNames.outward("ranks 0, 1 and 2 more"), "ranks 1, 3 and 2 more");
  EXPECT_EQ(kNames.outward("rank 2: kind reduce root 1 of 2 ranks, rank 0 has 2 ranks"),
            "rank 14: kind reduce root 3 of 2 ranks, rank 1 has 2 ranks");
  EXPECT_EQ(kNames.outward("the reducer of rank 1 (10.0.0.1:7470)"), "the reducer of rank 3 (10.0.0.1:7470)");
}

TEST(MemberNames, OtherNumbersStay) {
  for (const char* const text : {"", "rank", "ranks ", "rank 3", "rank 99999999999", "frank 1", "rank x1",
                                 "1 rank", "reducer 10.0.0.1:7470 closed", "rank"})
    EXPECT_EQ(kNames.outward(text), text);
}

TEST(MemberNames, TextsOfTheUserPassThrough) {
  for (const char* const text : {"rank 1 lost: its process 7 has ended", "waiting for ranks 0, 1 and 2 more",
                                 "rank 1", "root 2 of rank 0", "no rank at all"}) {
    EXPECT_EQ(kNames.outward(MemberNames::inward(text)), text);
    // Through a reducer that adds who told it, and through several sessions.
    EXPECT_EQ(kNames.outward("rank 2: " + MemberNames::inward(MemberNames::inward(text))),
              "rank 14: " + std::string(text));
  }
}

TEST(MemberNames, AWholeTextOfTheUserIsTheReason) {
  EXPECT_EQ(kNames.reason("reducer r: rank 1 lost"), "rail 1: reducer r: rank 3 lost");
  EXPECT_EQ(kNames.reason("reducer r: rank 0: #: rank 1 has root #0"), "rank 3 has root 0");  // of a reducer
  for (const std::string text : {"rank 1: enough", "", "a bug #: 3"}) {
    const std::string whole = MemberNames::inward_whole(text);
    EXPECT_EQ(kNames.reason("reducer r ended the session: rank 0: " + whole), text);
  }
}

TEST(MemberNames, FieldsNameMembersOrRanksOfTheUser) {
  EXPECT_EQ(kNames.outward(Rank{1}), 3U);
  EXPECT_EQ(kNames.outward(Rank{3}), wire::kNoRank);  // no member
  EXPECT_EQ(kNames.outward(wire::kNoRank), wire::kNoRank);
  for (const Rank rank : {0U, 2U, 14U, 100'000U}) EXPECT_EQ(kNames.outward(MemberNames::inward(rank)), rank);
  EXPECT_NE(MemberNames::inward(wire::kNoRank), wire::kNoRank);  // a reducer would name the sender
  EXPECT_EQ(kNames.outward(MemberNames::inward(wire::kNoRank)), wire::kNoRank);
}

}  // namespace
}  // namespace sluice::engine
