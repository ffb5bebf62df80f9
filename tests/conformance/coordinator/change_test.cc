// get, list, create, compare_and_swap and remove.
#include <gmock/gmock.h>

#include <mutex>

#include "tests/conformance/coordinator/coordinator_fixture.h"

namespace sluice::test {
namespace {

using store::ChangeResult;
using store::Entry;
using store::Outcome;
using store::Revision;

TEST_P(CoordinatorConformance, CreatesAKeyOnce) {
  EXPECT_EQ(get(coordinator(), "models/a"), std::nullopt);
  const ChangeResult made = create(coordinator(), "models/a", "first");
  ASSERT_TRUE(made.is_done());
  EXPECT_GT(made.revision, 0);
  EXPECT_EQ(made.entry, (Entry{.key = "models/a", .value = "first", .revision = made.revision}));
  EXPECT_EQ(get(coordinator(), "models/a"), made.entry);

  const ChangeResult again = create(coordinator(), "models/a", "second");
  EXPECT_EQ(again.outcome, Outcome::kConflict);
  EXPECT_EQ(again.entry, made.entry);
}

TEST_P(CoordinatorConformance, SwapsOnlyTheExpectedRevision) {
  EXPECT_EQ(swap(coordinator(), "k", 1, "x").outcome, Outcome::kNotFound);
  const ChangeResult first = create(coordinator(), "k", "1");
  const ChangeResult second = swap(coordinator(), "k", first.revision, "2");
  ASSERT_TRUE(second.is_done());
  EXPECT_GT(second.revision, first.revision);
  const ChangeResult late = swap(coordinator(), "k", first.revision, "3");
  EXPECT_EQ(late.outcome, Outcome::kConflict);
  EXPECT_EQ(late.entry, second.entry);
  EXPECT_EQ(get(coordinator(), "k")->value, "2");
  EXPECT_EQ(swap(coordinator(), "k", second.revision + 1000, "3").outcome, Outcome::kConflict);
}

TEST_P(CoordinatorConformance, RemovesOnlyTheExpectedRevision) {
  EXPECT_EQ(remove(coordinator(), "k", 1).outcome, Outcome::kNotFound);
  const ChangeResult first = create(coordinator(), "k", "1");
  const ChangeResult second = swap(coordinator(), "k", first.revision, "2");
  EXPECT_EQ(remove(coordinator(), "k", first.revision).entry, second.entry);
  const ChangeResult removed = remove(coordinator(), "k", second.revision);
  EXPECT_TRUE(removed.is_done());
  EXPECT_EQ(removed.entry, std::nullopt);
  EXPECT_EQ(get(coordinator(), "k"), std::nullopt);
  const ChangeResult anew = create(coordinator(), "k", "3");
  EXPECT_TRUE(anew.is_done());
  EXPECT_GT(anew.revision, removed.revision);
}

TEST_P(CoordinatorConformance, ListsAPrefixInOrder) {
  std::vector<std::string> expected;
  for (int i = 0; i < 50; ++i) {  // several pages
    expected.push_back("models/" + std::to_string(100 + i));
    ASSERT_TRUE(create(coordinator(), expected.back(), std::to_string(i)).is_done());
  }
  ASSERT_TRUE(create(coordinator(), "models.", "below").is_done());
  ASSERT_TRUE(create(coordinator(), "models0", "above").is_done());
  const ChangeResult last =
      swap(coordinator(), "models/100", get(coordinator(), "models/100")->revision, "new");
  const store::Listing listing = value_of(coordinator().list("models/"));
  std::vector<std::string> keys;
  for (const Entry& entry : listing.entries) keys.push_back(entry.key);
  EXPECT_EQ(keys, expected);
  EXPECT_EQ(listing.entries.front(), last.entry);
  EXPECT_GE(listing.revision, last.revision);
  EXPECT_THAT(value_of(coordinator().list("none/")).entries, testing::IsEmpty());
}

TEST_P(CoordinatorConformance, ValuesAreBytes) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  ASSERT_TRUE(create(coordinator(), "bytes", bytes).is_done());
  EXPECT_EQ(get(coordinator(), "bytes")->value, bytes);
  ASSERT_TRUE(create(coordinator(), "empty", "").is_done());
  EXPECT_EQ(get(coordinator(), "empty")->value, "");
  const std::string large(store::kMaxValueBytes, 'x');
  ASSERT_TRUE(create(coordinator(), "large", large).is_done());
  EXPECT_EQ(get(coordinator(), "large")->value, large);
}

// Together they are more than one request to etcd can have.
TEST_P(CoordinatorConformance, ListsLargeValues) {
  constexpr size_t kCount = 3;
  const std::string large(store::kMaxValueBytes, 'x');
  for (size_t i = 0; i < kCount; ++i)
    ASSERT_TRUE(create(coordinator(), "large/" + std::to_string(i), large).is_done());
  const store::Listing listing = value_of(coordinator().list("large/"));
  EXPECT_EQ(listing.entries.size(), kCount);
  for (const Entry& entry : listing.entries) EXPECT_TRUE(entry.value == large) << entry.key;
}

TEST_P(CoordinatorConformance, RefusesWhatIsOutOfLimits) {
  const auto is_refused = [](const auto& result) {
    return !result && result.error().code == Errc::kInvalidArgument && !store::is_unavailable(result.error());
  };
  for (const std::string& key :
       {std::string(), std::string("a b"), std::string("\n"), std::string("\xc3\xa4"), std::string("a\0b", 3),
        std::string(store::kMaxKeyBytes + 1, 'k')}) {
    EXPECT_TRUE(is_refused(coordinator().get(key))) << key;
    EXPECT_TRUE(is_refused(coordinator().list(key))) << key;
    EXPECT_TRUE(is_refused(coordinator().create(key, ""))) << key;
    EXPECT_TRUE(is_refused(coordinator().compare_and_swap(key, 1, ""))) << key;
    EXPECT_TRUE(is_refused(coordinator().remove(key, 1))) << key;
  }
  EXPECT_TRUE(is_refused(coordinator().create("k", std::string(store::kMaxValueBytes + 1, 'x'))));
  EXPECT_TRUE(is_refused(coordinator().compare_and_swap("k", 0, "")));
  EXPECT_TRUE(is_refused(coordinator().remove("k", -1)));
  EXPECT_TRUE(is_refused(coordinator().grant(kSecond - 1)));
  EXPECT_TRUE(is_refused(coordinator().grant(store::kMaxTtl + 1)));
}

// Each swap that is done adds 1, so a lost or doubled one shows in the sum.
TEST_P(CoordinatorConformance, SwapsOfEightThreadsAreInOrder) {
  constexpr int kThreads = 8, kWins = 10;
  ASSERT_TRUE(create(coordinator(), "counter", "0").is_done());
  std::mutex mutex;
  std::vector<std::pair<Revision, std::string>> wins;
  run_threads(kThreads, [&](int) {
    for (int won = 0; won < kWins;) {
      const Entry current = *get(coordinator(), "counter");
      const std::string next = std::to_string(std::stoi(current.value) + 1);
      const ChangeResult result = swap(coordinator(), "counter", current.revision, next);
      if (!result.is_done()) {
        ASSERT_EQ(result.outcome, Outcome::kConflict);
        ASSERT_GT(result.entry->revision, current.revision);
        continue;
      }
      ++won;
      const std::lock_guard lock(mutex);
      wins.emplace_back(result.revision, next);
    }
  });
  std::ranges::sort(wins);
  ASSERT_EQ(wins.size(), kThreads * kWins);
  for (size_t i = 0; i < wins.size(); ++i) EXPECT_EQ(wins[i].second, std::to_string(i + 1));
  EXPECT_EQ(get(coordinator(), "counter")->value, std::to_string(kThreads * kWins));
}

}  // namespace
}  // namespace sluice::test
