#include "blackbox/event_ring.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <numeric>
#include <thread>
#include <vector>

#include "blackbox/event_kinds.h"
#include "blackbox/event_source.h"

namespace sluice::blackbox::test {
namespace {

// A record whose words must agree: any mixture of two records is detected.
struct Record {
  std::array<uint64_t, 12> words{};

  static Record of(uint64_t value) {
    Record r;
    for (size_t i = 0; i < r.words.size(); ++i) r.words[i] = value * 31 + i;
    return r;
  }
  [[nodiscard]] bool is_whole() const {
    for (size_t i = 1; i < words.size(); ++i) {
      if (words[i] != words[0] + i) return false;
    }
    return true;
  }
};

template <size_t kCapacity>
std::vector<uint64_t> values_of(const EventRing<Record, kCapacity>& ring) {
  std::vector<uint64_t> values;
  Record record;
  for (uint64_t i = ring.begin(); i < ring.end(); ++i) {
    if (ring.read(i, record)) values.push_back(record.words[0] / 31);
  }
  return values;
}

TEST(EventRing, KeepsTheLastRecordsInTheirOrder) {
  EventRing<Record, 8> ring;
  EXPECT_TRUE(values_of(ring).empty());
  for (uint64_t count = 1; count <= 20; ++count) {
    ring.add(Record::of(count));
    const std::vector<uint64_t> values = values_of(ring);
    ASSERT_EQ(values.size(), std::min<uint64_t>(count, 8));
    std::vector<uint64_t> expected(values.size());
    std::iota(expected.begin(), expected.end(), count - values.size() + 1);
    EXPECT_EQ(values, expected);
    EXPECT_EQ(ring.replaced(), count > 8 ? count - 8 : 0);
  }
  EXPECT_EQ(ring.dropped(), 0u);
}

TEST(EventRing, HidesWhatItHasWhenItIsCleared) {
  EventRing<Record, 8> ring;
  for (uint64_t i = 0; i < 11; ++i) ring.add(Record::of(i));
  ring.clear();
  EXPECT_TRUE(values_of(ring).empty());
  EXPECT_EQ(ring.replaced(), 0u);
  ring.add(Record::of(42));
  EXPECT_EQ(values_of(ring), std::vector<uint64_t>{42});
}

TEST(EventRing, DoesNotReadARecordThatIsNotThere) {
  EventRing<Record, 4> ring;
  Record out;
  EXPECT_FALSE(ring.read(0, out));
  for (uint64_t i = 0; i < 6; ++i) ring.add(Record::of(i));
  EXPECT_FALSE(ring.read(1, out));  // replaced
  EXPECT_TRUE(ring.read(2, out));
  EXPECT_FALSE(ring.read(6, out));  // not written yet
}

// The ring is so small that writers often meet in a slot, and read what others write.
TEST(EventRing, NeverMixesTheRecordsOfSeveralThreads) {
  constexpr uint64_t kEach = 100'000;
  constexpr size_t kThreads = 3;
  EventRing<Record, 2> ring;
  std::atomic<uint64_t> seen{0};
  std::atomic<uint64_t> mixed{0};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Record record;
      for (uint64_t i = 0; i < kEach; ++i) {
        ring.add(Record::of(t * kEach + i));
        for (uint64_t n = ring.begin(); n < ring.end(); ++n) {
          if (!ring.read(n, record)) continue;
          ++seen;
          if (!record.is_whole()) ++mixed;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(seen, kEach);
  EXPECT_EQ(mixed, 0u);
  EXPECT_EQ(ring.end(), kThreads * kEach);
}

TEST(EventKinds, EveryKindHasOneNameAndOneEntry) {
  const auto kinds = event_kinds();
  EXPECT_EQ(kinds.size(), static_cast<size_t>(EventKind::kOperationEnded));  // all but kNone
  for (const EventKindInfo& info : kinds) {
    EXPECT_EQ(find_event_kind(info.kind), &info);
    EXPECT_EQ(find_event_kind(info.name), &info);
    EXPECT_NE(peer_kind_of(info, Role::kRank), PeerKind::kOpposite);
    EXPECT_NE(peer_kind_of(info, Role::kReducer), PeerKind::kOpposite);
  }
  EXPECT_EQ(find_event_kind("no such event"), nullptr);
}

TEST(EventSource, RecordsItsIdentityAndCutsLongTexts) {
  SessionId session;
  std::iota(session.bytes.begin(), session.bytes.end(), uint8_t{1});
  ProcessRings& rings = process_rings();
  rings.events.clear();
  const std::string text(500, 'x');
  EventSource::of_rank(session, 7).record(EventKind::kReducerLost, {.peer = 3, .code = Errc::kReset}, text);
  TextEvent record;
  ASSERT_TRUE(rings.events.read(rings.events.begin(), record));
  EXPECT_EQ(record.event.session, 0x0102030405060708u);
  EXPECT_EQ(record.event.role, Role::kRank);
  EXPECT_EQ(record.event.source, 7u);
  EXPECT_EQ(record.event.peer, 3u);
  EXPECT_EQ(record.event.code, Errc::kReset);
  EXPECT_GT(record.event.at, 0);
  EXPECT_EQ(std::string(record.text.data()), text.substr(0, kEventTextBytes - 1));
}

}  // namespace
}  // namespace sluice::blackbox::test
