// Steps that begin while their deltas arrive, and pulls that follow them (protocol.md section 16).
#include <algorithm>
#include <optional>

#include "tests/functional/store_fixture.h"

namespace sluice::test {
namespace {

constexpr uint64_t kInFrame = wire::kModelDataBytes / sizeof(float), kLarge = 40'000;  // two frames
static_assert(kLarge > kInFrame && kLarge < 2 * kInFrame);
const std::string kLargeSync =
    R"({"name": "m", "versions": 2, "mode": {"kind": "sync", "quorum": 2, "grace_ms": 0}, "rule": {"kind": "add"}, )"
    R"("tensors": [{"name": "w", "dtype": "f32", "shape": [40000]}]})";

// A worker with a connection for its push and one for the step.
struct Worker {
  ScriptedConnection owner, leader;
};

class EarlySteps : public StoreRequests {
 protected:
  void begin() {
    start_with_models();
    auto creator = connect();
    creator.send(wire::ModelQuery{.kind = wire::ModelQueryKind::kCreate, .bytes = kLargeSync.size()});
    send_body(creator, std::as_bytes(std::span(kLargeSync)));
    model_ = receive_json(creator)["model"].get<uint64_t>();
    creator.send(wire::Install{.model = model_, .bytes = kLarge * sizeof(float)});
    for (const uint64_t first : {uint64_t{0}, kInFrame}) send_part(creator, first, 1.0F);
    (void)creator.expect<wire::Done>();
    creator.send(wire::StartModel{.model = model_});
    (void)creator.expect<wire::Done>();
  }
  // The frame of a body that begins with this element.
  static void send_part(ScriptedConnection& c, uint64_t first, float value) {
    const std::vector<float> values(std::min(kInFrame, kLarge - first), value);
    c.send_bytes(frame_of_data(first * sizeof(float), std::as_bytes(std::span(values))));
  }
  static void expect_part(ScriptedConnection& c, uint64_t first, float value) {
    const auto frame = c.receive();
    ASSERT_TRUE(frame);
    ASSERT_EQ(frame->header.type, wire::FrameType::kModelData);
    ASSERT_EQ(frame->header.chunk, first * sizeof(float));
    std::vector<float> values(frame->payload.size() / sizeof(float));
    std::memcpy(values.data(), frame->payload.data(), frame->payload.size());
    EXPECT_EQ(values, std::vector<float>(std::min(kInFrame, kLarge - first), value));
  }
  void send_step(ScriptedConnection& c, uint64_t worker, uint8_t early = 1) const {
    c.send(wire::PushStep{.model = model_,
                          .worker = worker,
                          .number = 1,
                          .weight_bits = std::bit_cast<uint32_t>(1.0F),
                          .timeout_ms = 20'000,
                          .early = early});
  }
  void begin_push(ScriptedConnection& c, uint64_t worker) const {
    c.send(wire::Push{.model = model_, .worker = worker, .number = 1, .bytes = kLarge * sizeof(float)});
  }
  // Both workers announce their pushes and send the first frames, and a reader has received what follows.
  void begin_step() {
    for (uint64_t w = 0; w < 2; ++w) {
      workers_.push_back({.owner = connect(), .leader = connect()});
      begin_push(workers_[w].owner, w);  // first: the step that both have announced waits only 1 s for it
      send_step(workers_[w].leader, w);
      send_part(workers_[w].owner, 0, 2.0F * static_cast<float>(w));  // the mean is 1
    }
    reader_.emplace(connect());
    pull_early(*reader_, 20'000);
    EXPECT_EQ(reader_->expect<wire::PullAnswer>().bytes, kLarge * sizeof(float));
    expect_part(*reader_, 0, 2);  // although no delta is complete
  }
  void pull_early(ScriptedConnection& c, uint32_t timeout_ms) const {
    c.send(wire::Pull{.model = model_, .version = 1, .early = 1, .timeout_ms = timeout_ms});
  }

  uint64_t model_ = 0;
  std::vector<Worker> workers_;
  std::optional<ScriptedConnection> reader_;
};

TEST_F(EarlySteps, ValuesAreThereBeforeTheDeltas) {
  begin();
  begin_step();
  for (Worker& worker : workers_) send_part(worker.owner, kInFrame, 4);
  expect_part(*reader_, kInFrame, 5);
  (void)reader_->expect<wire::Done>();
  for (Worker& worker : workers_) {
    (void)worker.owner.expect<wire::Done>();
    const auto answer = worker.leader.expect<wire::PushAnswer>();
    EXPECT_EQ(answer.outcome, wire::PushOutcome::kContained);
    EXPECT_EQ(answer.version, 1U);
  }
  // A later reader, early or not, gets the same.
  for (const uint8_t early : {uint8_t{0}, uint8_t{1}}) {
    reader_->send(wire::Pull{.model = model_, .version = 1, .early = early});
    (void)reader_->expect<wire::PullAnswer>();
    expect_part(*reader_, 0, 2);
    expect_part(*reader_, kInFrame, 5);
    if (early == 1) (void)reader_->expect<wire::Done>();
  }
}

TEST_F(EarlySteps, ALostDeltaEndsTheStepAndItsReaders) {
  begin();
  begin_step();
  send_part(workers_[0].owner, kInFrame, 4);
  (void)workers_[0].owner.expect<wire::Done>();
  workers_[1].owner.close();
  EXPECT_TRUE(reader_->closed_within(10 * kSecond));
  for (Worker& worker : workers_)
    EXPECT_EQ(worker.leader.expect<wire::PushAnswer>().outcome, wire::PushOutcome::kNotStaged);
  // Both push again, with other values: nothing is left of the first ones.
  workers_[1].owner = connect();
  for (uint64_t w = 0; w < 2; ++w) {
    begin_push(workers_[w].owner, w);
    for (const uint64_t first : {uint64_t{0}, kInFrame}) send_part(workers_[w].owner, first, 8);
    (void)workers_[w].owner.expect<wire::Done>();
    send_step(workers_[w].leader, w, 0);
  }
  for (Worker& worker : workers_)
    EXPECT_EQ(worker.leader.expect<wire::PushAnswer>().outcome, wire::PushOutcome::kContained);
  reader_.emplace(connect());
  pull_early(*reader_, 0);
  (void)reader_->expect<wire::PullAnswer>();
  expect_part(*reader_, 0, 9);
  expect_part(*reader_, kInFrame, 9);
  (void)reader_->expect<wire::Done>();
}

TEST_F(EarlySteps, AReaderWaitsForItsVersionUntilTheTimeout) {
  begin();
  auto c = connect();
  pull_early(c, 20);
  const auto failed = c.expect<wire::Failed>();
  EXPECT_EQ(failed.code, Errc::kTimeout);
  EXPECT_EQ(failed.text, R"(version 1 of model "m" is not in progress yet)");
}

TEST_F(EarlySteps, TheEndOfTheReducerEndsThem) {
  begin();
  begin_step();
  service_.stop();
  EXPECT_TRUE(reader_->closed_within(5 * kSecond));
}

TEST_F(EarlySteps, AreOfSyncModelsOnly) {
  start_with_models();
  auto c = connect();
  model_ = create(c);  // async
  send_step(c, 1);
  EXPECT_EQ(c.expect<wire::Failed>().code, Errc::kInvalidArgument);
}

}  // namespace
}  // namespace sluice::test
