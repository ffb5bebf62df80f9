// The counters of sluice_stats for losses that a session has recovered from.
#include <algorithm>
#include <iterator>
#include <numeric>

#include "tests/functional/discarding_relay.h"
#include "tests/functional/engine_test_bed.h"

namespace sluice::test {
namespace {

class EngineCounts : public EngineTestBed {
 protected:
  std::vector<Created> create_two() {
    std::vector<Created> out(2);
    each_rank(2, [&](uint32_t rank) { out[rank] = create(options_for(rank, 2)); });
    // Stopping a reducer before both ranks have started would end the session.
    EXPECT_TRUE(progress_until(out, [&] {
      return std::ranges::all_of(reducers_, [](const auto& reducer) {
        return reducer->status_json().find("\"joining\":0") != std::string::npos;
      });
    }));
    return out;
  }
  // Elements that are few enough to be in flight at once. With co-located reducers chunks are smaller.
  static size_t count_in_flight() { return is_colocated() ? 5'000 : 20'000; }
  static void close_all(const std::vector<Created>& sessions) {
    each_rank(2, [&](uint32_t r) { EXPECT_EQ(sluice_session_close(sessions[r].session), SLUICE_OK); });
  }
  static sluice_stats stats_of(const Created& created) {
    sluice_stats stats{};
    stats.struct_size = sizeof stats;
    EXPECT_EQ(sluice_session_stats(created.session, &stats), SLUICE_OK);
    return stats;
  }
  // Makes progress on all sessions until the condition holds. Returns false after 20 s.
  static bool progress_until(const std::vector<Created>& sessions, const std::function<bool()>& condition) {
    return eventually([&] {
      for (const Created& c : sessions) static_cast<void>(sluice_progress(c.session));
      return condition();
    });
  }
};

TEST_F(EngineCounts, CountsAViewChange) {
  start_reducers(2);
  const Nanos begin = monotonic_now();
  const auto sessions = create_two();
  for (const Created& c : sessions) ASSERT_EQ(c.status, SLUICE_OK) << c.error;
  EXPECT_EQ(stats_of(sessions[0]).view_changes, 0u);
  std::thread stopper([&] { reducers_[1]->stop(); });
  each_rank(2, [&](uint32_t r) {
    // Until both ranks have counted the change, and all contributions to the stopped reducer were sent again.
    std::vector<float> seen(300'000);
    for (float sum = 0; sum < 2; sum = seen[0]) {
      const sluice_stats now = stats_of(sessions[r]);
      seen[0] = now.view_changes > 0 && now.stalled_us > 0 ? 1 : 0;
      std::fill(seen.begin() + 1, seen.end(), 1.0F);
      ASSERT_EQ(sluice_allreduce(sessions[r].session, seen.data(), seen.data(), seen.size(), SLUICE_F32,
                                 SLUICE_SUM),
                SLUICE_OK);
      ASSERT_TRUE(std::all_of(seen.begin() + 1, seen.end(), [](float x) { return x == 2; }));
    }
    const sluice_stats stats = stats_of(sessions[r]);
    EXPECT_EQ(stats.view_changes, 1u);
    EXPECT_EQ(std::accumulate(std::begin(stats.stalls), std::end(stats.stalls), 0u), 1u);
    EXPECT_GT(stats.stalled_us, 0u);
    EXPECT_GT(stats.longest_stall_us, 0u);
    EXPECT_LE(std::max(stats.stalled_us, stats.longest_stall_us),
              static_cast<uint64_t>((monotonic_now() - begin) / kMicrosecond));
    EXPECT_EQ(stats.reducers_lost, 1u);
    EXPECT_EQ(stats.connections_resumed, 0u);
  });
  stopper.join();
  close_all(sessions);
}

TEST_F(EngineCounts, CountsResentBytes) {
  start_reducers(2);
  const auto sessions = create_two();
  for (const Created& c : sessions) ASSERT_EQ(c.status, SLUICE_OK) << c.error;
  const size_t count = count_in_flight();
  const uint64_t bytes = count * sizeof(float);
  std::vector<float> x(count, 1.0F);
  sluice_request request = 0;
  ASSERT_EQ(sluice_allreduce_async(sessions[0].session, x.data(), x.data(), count, SLUICE_F32, SLUICE_SUM,
                                   &request),
            SLUICE_OK);
  // No chunk can have a result before the other rank contributes, so all chunks are affected by the loss.
  ASSERT_TRUE(progress_until(sessions, [&] { return stats_of(sessions[0]).payload_bytes_out == bytes; }));
  EXPECT_EQ(stats_of(sessions[0]).payload_bytes_resent, 0u);
  reducers_[1]->stop();
  ASSERT_TRUE(progress_until(sessions, [&] {
    return stats_of(sessions[0]).view_changes == 1 && stats_of(sessions[1]).view_changes == 1;
  }));
  std::vector<float> y(count, 2.0F);
  ASSERT_EQ(sluice_allreduce(sessions[1].session, y.data(), y.data(), count, SLUICE_F32, SLUICE_SUM),
            SLUICE_OK);
  ASSERT_EQ(sluice_wait(sessions[0].session, request, -1), SLUICE_OK);
  EXPECT_EQ(x, std::vector<float>(count, 3.0F));
  for (uint32_t r = 0; r < 2; ++r) {
    const sluice_stats stats = stats_of(sessions[r]);
    EXPECT_EQ(stats.payload_bytes_resent, r == 0 ? bytes : 0) << "rank " << r;
    EXPECT_EQ(stats.payload_bytes_out, r == 0 ? 2 * bytes : bytes);
    EXPECT_EQ(stats.connections_resumed, 0u);
    EXPECT_EQ(stats.view_changes, 1u);
    EXPECT_EQ(stats.reducers_lost, 1u);
  }
  close_all(sessions);
}

TEST_F(EngineCounts, CountsReopenedConnections) {
  start_reducers(1);
  DiscardingRelay relay(reducers_[0]->port());
  addresses_ = "127.0.0.1:" + std::to_string(relay.port());
  const auto sessions = create_two();
  for (const Created& c : sessions) ASSERT_EQ(c.status, SLUICE_OK) << c.error;
  const size_t count = count_in_flight();
  const uint64_t bytes = count * sizeof(float);
  constexpr uint64_t kConnections = 3;  // of each rank: control and two lanes
  relay.discard();
  std::vector<float> x(count, 1.0F);
  sluice_request request = 0;
  ASSERT_EQ(sluice_allreduce_async(sessions[0].session, x.data(), x.data(), count, SLUICE_F32, SLUICE_SUM,
                                   &request),
            SLUICE_OK);
  ASSERT_TRUE(progress_until(sessions, [&] { return stats_of(sessions[0]).payload_bytes_out == bytes; }));
  EXPECT_EQ(stats_of(sessions[0]).payload_bytes_resent, 0u);
  // The relay also has the closed connections of the agreement on co-located reducers.
  const uint64_t closed = relay.close_connections();
  if (is_colocated()) {
    EXPECT_GT(closed, 2 * kConnections);
  } else {
    EXPECT_EQ(closed, 2 * kConnections);
  }
  // Rank 1 sends only on new connections, so it need not send again.
  ASSERT_TRUE(progress_until(sessions, [&] {
    return std::ranges::all_of(
        sessions, [&](const Created& c) { return stats_of(c).connections_resumed == kConnections; });
  }));
  std::vector<float> y(count, 2.0F);
  ASSERT_EQ(sluice_allreduce(sessions[1].session, y.data(), y.data(), count, SLUICE_F32, SLUICE_SUM),
            SLUICE_OK);
  ASSERT_EQ(sluice_wait(sessions[0].session, request, -1), SLUICE_OK);
  EXPECT_EQ(x, std::vector<float>(count, 3.0F));
  EXPECT_EQ(y, x);
  for (uint32_t r = 0; r < 2; ++r) {
    const sluice_stats stats = stats_of(sessions[r]);
    EXPECT_EQ(stats.connections_resumed, kConnections) << "rank " << r;
    const uint64_t resent = stats.payload_bytes_resent;
    if (is_colocated() && r == 0) {
      EXPECT_GT(resent, 0u);
      EXPECT_LT(resent, bytes) << "resent to a co-located reducer, which has lost no connection";
    } else {
      EXPECT_EQ(resent, r == 0 ? bytes : 0) << "rank " << r;
    }
    EXPECT_EQ(stats.payload_bytes_out, bytes + resent) << "rank " << r;
    EXPECT_EQ(stats.view_changes, 0u);
    EXPECT_EQ(stats.reducers_lost, 0u);
  }
  close_all(sessions);
}

TEST_F(EngineCounts, DoesNotCountPlannedRemovalsAsLost) {
  start_reducers(3);
  const auto sessions = create_two();
  for (const Created& c : sessions) ASSERT_EQ(c.status, SLUICE_OK) << c.error;
  const auto changed = [&](uint64_t times) {
    return progress_until(sessions, [&] {
      return stats_of(sessions[0]).view_changes == times && stats_of(sessions[1]).view_changes == times;
    });
  };
  reducers_[2]->drain();
  ASSERT_TRUE(changed(1));
  const std::string first = addresses_.substr(0, addresses_.find(','));
  ASSERT_EQ(sluice_session_set_reducers(sessions[0].session, first.c_str(), nullptr, 0), SLUICE_OK);
  ASSERT_TRUE(changed(2));
  for (const Created& c : sessions) EXPECT_EQ(stats_of(c).reducers_lost, 0u);
  close_all(sessions);
}

}  // namespace
}  // namespace sluice::test
