// Reducers that end a session in unusual ways.
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

}  // namespace
}  // namespace sluice::test
