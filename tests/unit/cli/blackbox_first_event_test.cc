// Scripted failures: which event `sluice blackbox` names as the first one, in which words.
#include <gtest/gtest.h>

#include <csignal>

#include "cli/blackbox/first_event.h"
#include "tests/unit/cli/recorded_job.h"

namespace sluice::cli::test {
namespace {

using K = blackbox::EventKind;

// Two ranks and two reducers, each on a host of its own, with files of all.
class FirstEventTest : public testing::Test {
 protected:
  RecordedJob job_;
  size_t rank0_ = job_.add_rank(0, "w0");
  size_t rank1_ = job_.add_rank(1, "w1");
  size_t a_ = job_.add_reducer(kReducerA, "ra");
  size_t b_ = job_.add_reducer(kReducerB, "rb");

  void ends_everywhere(double before_ms, Errc code, const std::string& text) {
    job_.of_reducer(a_, kReducerA, {.before_ms = before_ms, .kind = K::kEnded, .code = code, .text = text});
    job_.of_rank(rank0_, 0, {.before_ms = before_ms - 1, .kind = K::kEnded, .code = code, .text = text});
    job_.of_rank(rank1_, 1, {.before_ms = before_ms - 2, .kind = K::kEnded, .code = code, .text = text});
  }
};

// A job of which the file of one process is missing.
class MissingFileTest : public testing::Test {
 protected:
  RecordedJob job_;
  size_t rank0_ = job_.add_rank(0, "w0");
  size_t a_ = job_.add_reducer(kReducerA, "ra");
};

TEST_F(MissingFileTest, AKilledRank) {
  job_.of_reducer(a_, kReducerA,
                  {.before_ms = 3204, .kind = K::kConnectionLost, .peer = 1, .code = Errc::kReset});
  job_.of_reducer(a_, kReducerA,
                  {.before_ms = 3000, .kind = K::kConnectionLost, .peer = 1, .a = 1, .code = Errc::kClosed});
  job_.of_reducer(
      a_, kReducerA,
      {.before_ms = 2000, .kind = K::kEnded, .peer = 1, .code = Errc::kPeerLost, .text = "rank 1 lost"});
  job_.of_rank(rank0_, 0,
               {.before_ms = 1990, .kind = K::kEnded, .code = Errc::kPeerLost, .text = "rank 1 lost"});
  // What follows the end explains nothing.
  job_.of_rank(rank0_, 0,
               {.before_ms = 1000, .kind = K::kConnectionLost, .peer = kReducerB, .code = Errc::kReset});
  EXPECT_EQ(
      job_.sentence(),
      "first: reducer 10.0.0.1:7470 lost its connection to rank 1 (connection reset) 1.204 s before the "
      "session ended; there is no file of rank 1");
}

TEST_F(MissingFileTest, AKilledReducer) {
  const size_t rank1 = job_.add_rank(1, "w1");
  job_.of_rank(
      rank1, 1,
      {.before_ms = 3251, .kind = K::kConnectionLost, .peer = kReducerB, .a = 2, .code = Errc::kReset});
  job_.of_rank(rank0_, 0,
               {.before_ms = 3250, .kind = K::kConnectionLost, .peer = kReducerB, .code = Errc::kClosed});
  job_.of_rank(rank0_, 0,
               {.before_ms = 3000, .kind = K::kEnded, .code = Errc::kReducerLost, .text = "reducer lost"});
  job_.of_reducer(a_, kReducerA,
                  {.before_ms = 2999,
                   .kind = K::kEnded,
                   .peer = 0,
                   .code = Errc::kReducerLost,
                   .text = "rank 0: reducer lost"});
  EXPECT_EQ(
      job_.sentence(),
      "first: rank 1 lost its connection to reducer 10.0.0.2:7470 (connection reset) 0.251 s before the "
      "session ended; there is no file of reducer 10.0.0.2:7470");
}

TEST_F(MissingFileTest, AKilledReducerThatTheSessionContinuesWithout) {
  job_.of_rank(
      rank0_, 0,
      {.before_ms = 5000, .kind = K::kConnectionLost, .peer = kReducerB, .a = 1, .code = Errc::kReset});
  job_.of_rank(rank0_, 0,
               {.before_ms = 4900,
                .kind = K::kReducerLost,
                .peer = kReducerB,
                .code = Errc::kReducerLost,
                .text = "connection refused"});
  job_.of_rank(rank0_, 0, {.before_ms = 4800, .kind = K::kViewChanged, .a = 1, .b = 1});
  job_.of_rank(rank0_, 0, {.before_ms = 4800, .kind = K::kStallEnded, .a = 200, .text = "view changed"});
  EXPECT_EQ(
      job_.sentence(),
      "first: rank 0 lost its connection to reducer 10.0.0.2:7470 (connection reset) 5.000 s before the last "
      "file was written; the session continued; there is no file of reducer 10.0.0.2:7470");
}

// The loss of B was repaired, the loss of A was not.
TEST_F(MissingFileTest, ARepairedLossDoesNotExplainALaterEnd) {
  job_.of_rank(
      rank0_, 0,
      {.before_ms = 9000, .kind = K::kConnectionLost, .peer = kReducerB, .a = 1, .code = Errc::kReset});
  job_.of_rank(rank0_, 0, {.before_ms = 8900, .kind = K::kConnectionResumed, .peer = kReducerB, .a = 1});
  job_.of_rank(rank0_, 0,
               {.before_ms = 7000, .kind = K::kReducerLost, .peer = kReducerB, .code = Errc::kReducerLost});
  job_.of_rank(rank0_, 0, {.before_ms = 6900, .kind = K::kViewChanged, .a = 1, .b = 1});
  job_.of_rank(
      rank0_, 0,
      {.before_ms = 2000, .kind = K::kConnectionLost, .peer = kReducerA, .a = 1, .code = Errc::kTimeout});
  job_.of_rank(rank0_, 0,
               {.before_ms = 1000,
                .kind = K::kEnded,
                .code = Errc::kReducerLost,
                .text = "no reducer of the session is left"});
  EXPECT_EQ(
      job_.sentence(),
      "first: rank 0 lost its connection to reducer 10.0.0.1:7470 (no answer in time) 1.000 s before the "
      "session ended");
}

TEST_F(FirstEventTest, AMismatchAtTheJoin) {
  const std::string text =
      "ranks disagree on the window bytes: rank 1 (10.0.0.9:4242) has 4096, rank 0 has 8192";
  job_.of_reducer(
      a_, kReducerA,
      {.before_ms = 1001, .kind = K::kConnectionRefused, .peer = 1, .code = Errc::kMismatch, .text = text});
  ends_everywhere(1000, Errc::kMismatch, text);
  EXPECT_EQ(job_.sentence(), "first: reducer 10.0.0.1:7470 refused rank 1: mismatch: " + text +
                                 ", 0.001 s before the session ended");
}

TEST_F(FirstEventTest, AMismatchOfAnOperation) {
  ends_everywhere(1000, Errc::kMismatch, "rank 1 sends 4 elements, rank 0 sends 8");
  EXPECT_EQ(
      job_.sentence(),
      "first: reducer 10.0.0.1:7470 ended the session: mismatch: rank 1 sends 4 elements, rank 0 sends 8");
}

TEST_F(FirstEventTest, AnOperationThatTimedOutForALateRank) {
  job_.of_rank(rank0_, 0, {.before_ms = 30'000, .kind = K::kOperationBegan, .peer = 1, .a = 17});
  job_.of_reducer(a_, kReducerA, {.before_ms = 29'000, .kind = K::kRankLate, .peer = 1, .a = 1000, .b = 1});
  job_.of_rank(rank0_, 0, {.before_ms = 28'900, .kind = K::kRankLate, .peer = 1, .a = 1100, .b = 1});
  job_.of_rank(rank0_, 0,
               {.before_ms = 1000,
                .kind = K::kEnded,
                .peer = 0,
                .code = Errc::kOpTimeout,
                .text = "operation 17 timed out"});
  job_.of_reducer(a_, kReducerA,
                  {.before_ms = 999,
                   .kind = K::kEnded,
                   .peer = 0,
                   .code = Errc::kOpTimeout,
                   .text = "rank 0: operation 17 timed out"});
  EXPECT_EQ(job_.sentence(),
            "first: reducer 10.0.0.1:7470 waited 1000 ms for rank 1, 28.000 s before the session ended");
}

// Rank 1 writes a checkpoint, and meanwhile reducer B loses rank 0.
TEST_F(FirstEventTest, ALateRankDoesNotExplainALoss) {
  job_.of_reducer(a_, kReducerA, {.before_ms = 20'000, .kind = K::kRankLate, .peer = 1, .a = 1000, .b = 1});
  job_.of_reducer(b_, kReducerB,
                  {.before_ms = 2000, .kind = K::kConnectionLost, .peer = 0, .code = Errc::kReset});
  ends_everywhere(1000, Errc::kPeerLost, "rank 0 lost");
  EXPECT_EQ(
      job_.sentence(),
      "first: reducer 10.0.0.2:7470 lost its connection to rank 0 (connection reset) 1.000 s before the "
      "session ended");
}

// A stopped process is first late, then silent, then lost.
TEST_F(FirstEventTest, ARankThatIsLostAfterItWasLate) {
  job_.of_reducer(a_, kReducerA, {.before_ms = 12'000, .kind = K::kRankLate, .peer = 1, .a = 1000, .b = 1});
  job_.of_reducer(a_, kReducerA, {.before_ms = 6000, .kind = K::kPeerSilent, .peer = 1, .a = 10'000});
  job_.of_reducer(a_, kReducerA,
                  {.before_ms = 5900, .kind = K::kConnectionLost, .peer = 1, .code = Errc::kTimeout});
  ends_everywhere(1000, Errc::kPeerLost, "rank 1 lost");
  EXPECT_EQ(job_.sentence(),
            "first: reducer 10.0.0.1:7470 waited 1000 ms for rank 1, 11.000 s before the session ended");
}

TEST_F(FirstEventTest, ADrainedReducerAtItsTimeout) {
  job_.of_process(b_, {.before_ms = 26'000, .kind = K::kSignal, .a = SIGTERM});
  job_.of_reducer(b_, kReducerB, {.before_ms = 26'000, .kind = K::kReducerDraining, .a = 1}, 0);
  job_.of_reducer(b_, kReducerB, {.before_ms = 1000, .kind = K::kReducerStopping, .code = Errc::kDraining},
                  0);
  job_.of_reducer(b_, kReducerB,
                  {.before_ms = 1000,
                   .kind = K::kEnded,
                   .code = Errc::kDraining,
                   .text = "the drain timeout has passed"});
  EXPECT_EQ(job_.sentence(),
            "first: reducer 10.0.0.2:7470 received signal 15 (SIGTERM) 25.000 s before the session ended");
}

// The session has moved away from the drained reducer.
TEST_F(FirstEventTest, ADrainBeforeDoesNotExplainALoss) {
  job_.of_process(b_, {.before_ms = 26'000, .kind = K::kSignal, .a = SIGTERM});
  job_.of_reducer(b_, kReducerB, {.before_ms = 26'000, .kind = K::kReducerDraining, .a = 1}, 0);
  job_.of_rank(rank0_, 0, {.before_ms = 25'900, .kind = K::kReducerDraining, .peer = kReducerB});
  job_.of_rank(rank0_, 0, {.before_ms = 25'800, .kind = K::kViewChanged, .a = 1, .b = 1});
  job_.of_reducer(b_, kReducerB, {.before_ms = 25'700, .kind = K::kMoved});
  job_.of_rank(
      rank1_, 1,
      {.before_ms = 2000, .kind = K::kConnectionLost, .peer = kReducerA, .a = 1, .code = Errc::kReset});
  ends_everywhere(1000, Errc::kReducerLost, "no reducer of the session is left");
  EXPECT_EQ(
      job_.sentence(),
      "first: rank 1 lost its connection to reducer 10.0.0.1:7470 (connection reset) 1.000 s before the "
      "session ended");
}

TEST_F(FirstEventTest, ABadFrame) {
  job_.of_reducer(
      b_, kReducerB,
      {.before_ms = 1500, .kind = K::kConnectionLost, .peer = 0, .a = 2, .code = Errc::kBadPayloadCrc});
  ends_everywhere(1000, Errc::kBadPayloadCrc, "rank 0 sent a bad frame");
  EXPECT_EQ(
      job_.sentence(),
      "first: reducer 10.0.0.2:7470 lost its connection to rank 0 (malformed frame: bad_payload_crc) 0.500 s "
      "before the session ended");
}

// A reducer process that was stopped: the ranks lose their silent connections meanwhile.
TEST_F(FirstEventTest, AReducerThatDidNotRun) {
  job_.of_reducer(b_, kReducerB, {.before_ms = 11'500, .kind = K::kStalled, .a = 11'000}, 0);
  job_.of_rank(rank0_, 0,
               {.before_ms = 1500, .kind = K::kConnectionLost, .peer = kReducerB, .code = Errc::kTimeout});
  ends_everywhere(1000, Errc::kReducerLost, "reducer lost");
  EXPECT_EQ(
      job_.sentence(),
      "first: reducer 10.0.0.2:7470 did not run for 11000 ms (suspended or starved of CPU) 10.500 s before "
      "the session ended");
}

TEST_F(FirstEventTest, ARankThatAborts) {
  job_.of_rank(rank1_, 1,
               {.before_ms = 1001, .kind = K::kAborted, .code = Errc::kAborted, .text = "out of memory"});
  ends_everywhere(1000, Errc::kAborted, "rank 1: out of memory");
  EXPECT_EQ(job_.sentence(), "first: rank 1 aborted the session: out of memory");
}

TEST_F(FirstEventTest, NothingWentWrong) {
  job_.of_rank(rank0_, 0, {.before_ms = 10, .kind = K::kEnded, .code = Errc::kClosed});
  EXPECT_EQ(job_.sentence(), "first: nothing went wrong in these 9 events");
}

// The sentence is about the session of all files, and not about an earlier one that failed.
TEST_F(FirstEventTest, AnotherSessionOfAReducer) {
  job_.of_reducer(a_, kReducerA,
                  {.before_ms = 9000, .kind = K::kConnectionLost, .peer = 5, .code = Errc::kReset}, 77);
  job_.of_reducer(a_, kReducerA, {.before_ms = 8900, .kind = K::kEnded, .code = Errc::kPeerLost}, 77);
  job_.of_reducer(b_, kReducerB,
                  {.before_ms = 2000, .kind = K::kConnectionLost, .peer = 0, .code = Errc::kReset});
  ends_everywhere(1000, Errc::kPeerLost, "rank 0 lost");
  EXPECT_NE(job_.sentence().find("reducer 10.0.0.2:7470 lost its connection to rank 0"), std::string::npos);
  const Timeline timeline(job_.processes());
  EXPECT_NE(find_first_event(timeline, 77).sentence.find("to rank 5"), std::string::npos);
}

// A reducer whose id was replaced for the session: ranks and reducer call it differently.
TEST_F(FirstEventTest, AReducerWithAnotherIdForTheSession) {
  constexpr uint64_t kOwn = 0xcccc000000000003;
  const size_t c = job_.add_process("rc");
  job_.of_reducer(c, kOwn, {.before_ms = 90'000, .kind = K::kOpened, .peer = 0xdddd, .a = 2});
  job_.of_rank(
      rank0_, 0,
      {.before_ms = 90'000, .kind = K::kReducerJoined, .peer = 0xdddd, .text = "reducer 10.0.0.3:7470"});
  job_.of_reducer(c, kOwn, {.before_ms = 2000, .kind = K::kConnectionLost, .peer = 1, .code = Errc::kClosed});
  ends_everywhere(1000, Errc::kPeerLost, "rank 1 lost");
  EXPECT_EQ(job_.sentence().find("first: reducer 10.0.0.3:7470 lost its connection to rank 1"), 0u)
      << job_.sentence();
}

// Between hosts whose clocks are only assumed to agree, the stronger of two close events is the cause.
TEST_F(FirstEventTest, CloseEventsOfTwoHosts) {
  job_.of_rank(rank0_, 0,
               {.before_ms = 1005, .kind = K::kConnectionLost, .peer = kReducerB, .code = Errc::kClosed});
  job_.of_process(b_, {.before_ms = 1000, .kind = K::kSignal, .a = SIGTERM});
  ends_everywhere(900, Errc::kReducerLost, "reducer lost");
  EXPECT_NE(job_.sentence().find("reducer 10.0.0.2:7470 received signal 15"), std::string::npos)
      << job_.sentence();
}

}  // namespace
}  // namespace sluice::cli::test
