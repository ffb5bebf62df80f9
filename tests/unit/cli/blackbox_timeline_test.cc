// The merge: clocks of hosts, names, and the printed report.
#include <gtest/gtest.h>

#include "cli/blackbox/blackbox_report.h"
#include "cli/blackbox/timeline.h"
#include "tests/unit/cli/recorded_job.h"

namespace sluice::cli::test {
namespace {

using K = blackbox::EventKind;

// Heartbeats in both directions between rank 0 and reducer A, `transit_ms` on their way.
void add_heartbeats(RecordedJob& job, size_t rank, size_t reducer, double transit_ms, bool both = true) {
  for (uint64_t i = 0; i < 3; ++i) {
    const double at = 20'000 - 8000 * static_cast<double>(i);
    const uint64_t count = 1 + 8 * i;
    job.of_rank(rank, 0, {.before_ms = at, .kind = K::kHeartbeatSent, .peer = kReducerA, .a = count});
    job.of_reducer(reducer, kReducerA,
                   {.before_ms = at - transit_ms, .kind = K::kHeartbeatReceived, .peer = 0, .a = count});
    if (!both) continue;
    job.of_reducer(reducer, kReducerA, {.before_ms = at - 100, .kind = K::kHeartbeatSent, .a = count});
    job.of_rank(
        rank, 0,
        {.before_ms = at - 100 - transit_ms, .kind = K::kHeartbeatReceived, .peer = kReducerA, .a = count});
  }
}

TEST(BlackboxTimeline, CorrectsTheClockOfAHostByHeartbeats) {
  RecordedJob job;
  const size_t rank = job.add_rank(0, "w0");
  const size_t reducer = job.add_reducer(kReducerA, "ra", 5 * kSecond);
  add_heartbeats(job, rank, reducer, 2);
  job.of_reducer(reducer, kReducerA,
                 {.before_ms = 3000, .kind = K::kConnectionLost, .peer = 1, .code = Errc::kReset});
  job.of_rank(rank, 0,
              {.before_ms = 2000, .kind = K::kEnded, .code = Errc::kPeerLost, .text = "rank 1 lost"});
  const Timeline timeline(job.processes());
  const HostClock& clock = timeline.clocks().clocks.at(1);
  EXPECT_EQ(clock.state, HostClock::State::kCorrected);
  EXPECT_NEAR(static_cast<double>(clock.correction), -5e9, 2e6);
  EXPECT_EQ(clock.uncertainty, 2 * kMillisecond);
  // Without the correction the loss would follow the end by 4 s.
  const FirstEvent first = find_first_event(timeline);
  EXPECT_EQ(first.sentence.substr(0, first.sentence.find(';')),
            "first: reducer 10.0.0.1:7470 lost its connection to rank 1 (connection reset) 1.000 s before "
            "the session ended");
  const std::string report = blackbox_report(timeline, first, {});
  EXPECT_NE(report.find("clock: host ra is 5000.000 ms ahead of host w0, within 2.000 ms; corrected"),
            std::string::npos)
      << report;
}

TEST(BlackboxTimeline, LeavesClocksThatAgreeAlone) {
  RecordedJob job;
  const size_t rank = job.add_rank(0, "w0");
  const size_t reducer = job.add_reducer(kReducerA, "ra", kMillisecond);
  add_heartbeats(job, rank, reducer, 2);
  const Timeline timeline(job.processes());
  EXPECT_EQ(timeline.clocks().clocks.at(1).state, HostClock::State::kAgrees);
  EXPECT_EQ(timeline.clocks().clocks.at(1).correction, 0);
}

// Messages in one direction bound the difference from one side only.
TEST(BlackboxTimeline, SaysWhichClocksAreAssumedToAgree) {
  RecordedJob job;
  const size_t rank = job.add_rank(0, "w0");
  const size_t reducer = job.add_reducer(kReducerA, "ra", 5 * kSecond);
  add_heartbeats(job, rank, reducer, 2, false);
  const Timeline timeline(job.processes());
  EXPECT_EQ(timeline.clocks().clocks.at(1).state, HostClock::State::kAssumed);
  const std::string report = blackbox_report(timeline, find_first_event(timeline), {});
  EXPECT_NE(report.find("clock: host ra is assumed to agree with host w0"), std::string::npos) << report;
}

// The clocks of ranks on other hosts are known by the reducer that both talk to.
TEST(BlackboxTimeline, CorrectsAClockByWayOfAnother) {
  RecordedJob job;
  const size_t first = job.add_process("w9");
  job.of_rank(first, 9, {.before_ms = 5000, .kind = K::kHeartbeatSent, .peer = kReducerA, .a = 1});
  job.of_rank(first, 9, {.before_ms = 4000, .kind = K::kHeartbeatReceived, .peer = kReducerA, .a = 33});
  const size_t rank = job.add_rank(0, "w0", -7 * kSecond);
  const size_t reducer = job.add_reducer(kReducerA, "ra", 3 * kSecond);
  job.of_reducer(reducer, kReducerA, {.before_ms = 4999, .kind = K::kHeartbeatReceived, .peer = 9, .a = 1});
  job.of_reducer(reducer, kReducerA, {.before_ms = 4001, .kind = K::kHeartbeatSent, .a = 33});
  add_heartbeats(job, rank, reducer, 2);
  const Timeline timeline(job.processes());
  EXPECT_NEAR(static_cast<double>(timeline.clocks().clocks.at(1).correction), 7e9, 5e6);
  EXPECT_NEAR(static_cast<double>(timeline.clocks().clocks.at(2).correction), -3e9, 5e6);
}

// Processes of one host share its monotonic clock, even if the wall clock was set between their files.
TEST(BlackboxTimeline, ProcessesOfOneHostShareAClock) {
  RecordedJob job;
  job.add_rank(0, "w0");
  job.add_rank(1, "w0", 400 * kMillisecond);
  const Timeline timeline(job.processes());
  EXPECT_EQ(timeline.clocks().clocks.size(), 1u);
  EXPECT_EQ(timeline.entries()[0].at, timeline.entries()[2].at);
}

TEST(BlackboxTimeline, NamesReducersThatNoRankHasNamed) {
  RecordedJob job;
  const size_t a = job.add_reducer(kReducerA, "ra");
  const Timeline timeline(job.processes());
  EXPECT_EQ(timeline.reducer_name(kReducerA), "reducer ra:7470");
  EXPECT_EQ(timeline.process_name(a), "reducer ra:7470");
  EXPECT_EQ(timeline.reducer_name(kReducerB), "reducer bbbb0000");
  EXPECT_EQ(timeline.with_names("rank 1 suspects reducer aaaa000000000001, reducer aaaa00000000000"),
            "rank 1 suspects reducer ra:7470, reducer aaaa00000000000");
}

TEST(BlackboxReport, ShowsTheEventsOfAllFilesInTheOrderOfTime) {
  RecordedJob job;
  const size_t rank = job.add_rank(0, "w0");
  const size_t reducer = job.add_reducer(kReducerA, "w0");
  job.process(rank).is_truncated = true;
  job.process(reducer).events_replaced = 12;
  job.of_rank(rank, 0, {.before_ms = 3100, .kind = K::kOperationBegan, .peer = 1, .a = 4, .b = 1024});
  job.of_rank(rank, 0, {.before_ms = 3050, .kind = K::kOperationEnded, .peer = 1, .a = 4, .b = 1024});
  job.of_rank(rank, 0, {.before_ms = 3000, .kind = K::kOperationBegan, .peer = 1, .a = 5, .b = 1 << 20});
  job.of_reducer(reducer, kReducerA,
                 {.before_ms = 2500, .kind = K::kConnectionLost, .peer = 1, .code = Errc::kReset});
  job.of_rank(rank, 0,
              {.before_ms = 1500, .kind = K::kEnded, .code = Errc::kPeerLost, .text = "rank 1 lost"});
  const Timeline timeline(job.processes());
  const FirstEvent first = find_first_event(timeline);
  const std::string report = blackbox_report(timeline, first, {});
  EXPECT_NE(
      report.find(
          "\n   -1.500000 s  rank 0                 began operation 5 (allreduce, 1.0 MiB)\n"
          "   -1.000000 s  reducer 10.0.0.1:7470  lost its control connection to rank 1 (connection reset)\n"
          "    0.000000 s  rank 0                 reported the end of the session: peer_lost: rank 1 lost\n"
          "6 more events: --since 0 --all\n"),
      std::string::npos)
      << report;
  EXPECT_NE(report.find("note: the file is truncated"), std::string::npos);
  EXPECT_NE(report.find("note: 12 events, and 0 of operations and heartbeats, were too old to be kept"),
            std::string::npos);
  EXPECT_EQ(report.find("clock:"), std::string::npos);
  const std::string everything = blackbox_report(timeline, first, {.since = 0, .all = true});
  EXPECT_NE(everything.find("ended operation 4 (allreduce, 1.0 KiB)\n"), std::string::npos) << everything;
  EXPECT_EQ(everything.find("more events"), std::string::npos);
}

}  // namespace
}  // namespace sluice::cli::test
