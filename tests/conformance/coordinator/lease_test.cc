// grant, keep_alive, revoke, and keys under a lease.
#include "tests/conformance/coordinator/coordinator_fixture.h"

namespace sluice::test {
namespace {

using store::ChangeResult;
using store::Lease;
using store::Outcome;

TEST_P(CoordinatorConformance, LeaseEndsWithItsKeysUnlessItIsRenewed) {
  for (const Nanos deadline = monotonic_now() + kTestDeadline; monotonic_now() < deadline;) {
    const Nanos granted = monotonic_now();
    const Lease lease = value_of(coordinator().grant(kSecond));
    const Lease renewed = value_of(coordinator().grant(kSecond));
    EXPECT_GE(lease.ttl, kSecond);
    const std::string folder = "live-" + std::to_string(lease.id) + "/";
    const ChangeResult first = create(coordinator(), folder + "1", "a", lease.id);
    const ChangeResult second = create(coordinator(), folder + "2", "b", lease.id);
    const ChangeResult third = create(coordinator(), folder + "3", "c");
    const ChangeResult fourth = create(coordinator(), folder + "4", "d", renewed.id);
    if (monotonic_now() - granted >= lease.ttl / 2) continue;
    for (const ChangeResult* made : {&first, &second, &third, &fourth}) ASSERT_TRUE(made->is_done());
    EXPECT_EQ(first.entry->lease, lease.id);
    const std::string all = "1=a 2=b 3=c 4=d", left = "3=c 4=d";  // never "2=b 3=c 4=d"
    std::string found = all;
    Nanos last = granted, ended = 0;
    while (monotonic_now() - last < lease.ttl / 2 && (ended == 0 || last - granted < lease.ttl * 5 / 4)) {
      const Nanos now = monotonic_now();
      ASSERT_LT(now, deadline);
      if (!value_of(coordinator().keep_alive(renewed.id))) {
        ASSERT_GE(monotonic_now() - last, lease.ttl) << "the lease was renewed in time";
        break;
      }
      last = now;
      found = text_of(coordinator(), folder);
      if (ended == 0 && found != all) ended = monotonic_now();
      if (found != (ended == 0 ? all : left)) break;
    }
    // This thread may have renewed too late.
    if (monotonic_now() - last >= lease.ttl / 2) continue;
    EXPECT_GE(ended - granted, lease.ttl);
    ASSERT_EQ(found, left);
    EXPECT_EQ(get(coordinator(), folder + "1"), std::nullopt);
    EXPECT_TRUE(get(coordinator(), folder + "4"));
    EXPECT_FALSE(value_of(coordinator().keep_alive(lease.id)));
    EXPECT_EQ(create(coordinator(), folder + "5", "e", lease.id).outcome, Outcome::kLeaseEnded);
    EXPECT_EQ(get(coordinator(), folder + "5"), std::nullopt);
    return;
  }
  FAIL() << "this machine is too slow to renew a lease of 1 s";
}

TEST_P(CoordinatorConformance, RevokedLeaseEndsAtOnce) {
  const Lease lease = value_of(coordinator().grant(600 * kSecond));
  ASSERT_TRUE(create(coordinator(), "live/1", "a", lease.id).is_done());
  ASSERT_TRUE(coordinator().revoke(lease.id));
  EXPECT_EQ(get(coordinator(), "live/1"), std::nullopt);
  EXPECT_FALSE(value_of(coordinator().keep_alive(lease.id)));
  EXPECT_TRUE(coordinator().revoke(lease.id));  // once more is no error
}

TEST_P(CoordinatorConformance, KeysAndLeasesAreThereAfterARestart) {
  const Lease lease = value_of(coordinator().grant(600 * kSecond));
  ASSERT_TRUE(create(coordinator(), "w/1", "a").is_done());
  const ChangeResult second = create(coordinator(), "w/2", "b", lease.id);
  bed().restart();
  EXPECT_EQ(get(coordinator(), "w/2"), second.entry);
  EXPECT_TRUE(value_of(coordinator().keep_alive(lease.id)));
  EXPECT_GT(create(coordinator(), "w/3", "c").revision, second.revision);
  EXPECT_EQ(text_of(coordinator(), "w/"), "1=a 2=b 3=c");
  ASSERT_TRUE(coordinator().revoke(lease.id));
  EXPECT_EQ(text_of(coordinator(), "w/"), "1=a 3=c");
}

TEST_P(CoordinatorConformance, SwapMovesAKeyBetweenLeases) {
  const Lease one = value_of(coordinator().grant(600 * kSecond));
  const Lease two = value_of(coordinator().grant(600 * kSecond));
  ASSERT_NE(one.id, two.id);
  const ChangeResult a = create(coordinator(), "a", "", one.id);
  const ChangeResult b = create(coordinator(), "b", "", one.id);
  ASSERT_TRUE(swap(coordinator(), "a", a.revision, "moved", two.id).is_done());
  ASSERT_TRUE(swap(coordinator(), "b", b.revision, "free").is_done());
  ASSERT_TRUE(coordinator().revoke(one.id));
  EXPECT_EQ(get(coordinator(), "a")->lease, two.id);
  EXPECT_EQ(get(coordinator(), "b")->lease, store::kNoLease);
  ASSERT_TRUE(coordinator().revoke(two.id));
  EXPECT_EQ(get(coordinator(), "a"), std::nullopt);
  EXPECT_EQ(get(coordinator(), "b")->value, "free");
}

}  // namespace
}  // namespace sluice::test
