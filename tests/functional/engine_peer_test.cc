// Reducers that end a session in unusual ways.
#include <atomic>
#include <chrono>
#include <thread>

#include "core/log.h"
#include "tests/functional/engine_test_bed.h"
#include "tests/support/scripted_reducer.h"

namespace sluice::test {
namespace {

class EnginePeer : public EngineTestBed {
 protected:
  // Joins a session of one rank with reducers that follow the scripts.
  Created join(std::vector<ScriptedReducer::Script> scripts, uint32_t progress_threads = 1) {
    for (ScriptedReducer::Script& script : scripts) {
      peers_.push_back(std::make_unique<ScriptedReducer>(std::move(script)));
      if (!addresses_.empty()) addresses_ += ",";
      addresses_ += "127.0.0.1:" + std::to_string(peers_.back()->port());
    }
    sluice_options o = options_for(0, 1);
    o.progress_threads = progress_threads;
    return create(o);
  }

  std::vector<std::unique_ptr<ScriptedReducer>> peers_;
};

// Local error codes have a meaning inside this library: kWouldBlock, for example, means an open operation.
TEST_F(EnginePeer, ReplacesLocalErrorCodesOfPeers) {
  for (const Errc code : {Errc::kWouldBlock, Errc::kInvalidArgument, static_cast<Errc>(60000)}) {
    addresses_.clear();
    wire::Abort abort;
    abort.code = code;
    abort.text = "because";
    const Created c = join({{.id = 1, .abort = abort}});
    ASSERT_EQ(c.status, SLUICE_OK) << c.error;
    float x = 1;
    EXPECT_EQ(sluice_allreduce(c.session, &x, &x, 1, SLUICE_F32, SLUICE_SUM), SLUICE_LOST);
    EXPECT_THAT(reason_of(c.session), ::testing::HasSubstr("because"));
    EXPECT_EQ(sluice_session_close(c.session), SLUICE_LOST);
  }
}

// One reducer acknowledges LEAVE and closes long before the other: longer than the grace period of a lost
// lane.
TEST_F(EnginePeer, LeavesInOrderWhenReducersFinishAtDifferentTimes) {
  for (const uint32_t threads : {0u, 1u}) {
    addresses_.clear();
    const Created c = join({{.id = 1}, {.id = 2, .acknowledge_after = 500 * kMillisecond}}, threads);
    ASSERT_EQ(c.status, SLUICE_OK) << c.error;
    const Nanos begin = monotonic_now();
    EXPECT_EQ(sluice_session_close(c.session), SLUICE_OK) << threads;
    EXPECT_GE(monotonic_now() - begin, 500 * kMillisecond) << "waits for the second reducer";
  }
}

std::atomic<int> warned_lines{0};  // global, because a log sink is a plain function
std::atomic<bool> reads_log{false};

// Both warnings fall due while the first one blocks.
TEST_F(EnginePeer, HeartbeatsDoNotWaitForTheLogAndNoWarningIsLost) {
  log::set_sink([](log::Level /*level*/, std::string_view line) noexcept {
    if (line.find("sends data that does not arrive, for 6 s") == std::string_view::npos) return;
    ++warned_lines;
    while (!reads_log.load()) std::this_thread::yield();
  });
  wire::Heartbeat stalled;
  stalled.packets = 0, stalled.lost_packets = 0, stalled.stalled_ms = 6000;
  const Created c = join({{.id = 1, .heartbeat = stalled}, {.id = 2, .heartbeat = stalled}});
  ASSERT_EQ(c.status, SLUICE_OK) << c.error;
  const auto until = [](const auto& condition) {
    const Nanos deadline = monotonic_now() + 20 * kSecond;
    while (!condition() && monotonic_now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));  // between looks, as no event tells it
    return condition();
  };
  EXPECT_TRUE(until([] { return warned_lines.load() == 1; }));
  for (const auto& peer : peers_) {
    const int before = peer->heartbeats();
    EXPECT_TRUE(until([&] { return peer->heartbeats() > before + 1; }));
  }
  EXPECT_EQ(warned_lines.load(), 1);
  reads_log.store(true);
  EXPECT_TRUE(until([] { return warned_lines.load() == 2; }));
  EXPECT_EQ(sluice_session_close(c.session), SLUICE_OK);
  log::set_sink(nullptr);
}

}  // namespace
}  // namespace sluice::test
