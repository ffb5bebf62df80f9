// Requests of clients and strangers to the models of a reducer (protocol.md section 16), frame by frame.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "core/bytes.h"
#include "core/clock.h"
#include "store/model/model_json.h"
#include "store/server/delta_buffers.h"
#include "store/server/model_monitor.h"
#include "store/server/store_server.h"
#include "tests/functional/store_fixture.h"
#include "wire/payload/block_format.h"

namespace sluice::test {
namespace {

TEST_F(StoreRequests, APushMakesAVersionOnce) {
  start_with_models();
  auto c = connect();
  const uint64_t id = create(c);
  push(c, id, 7, -1.0F);
  EXPECT_EQ(push_step(c, id, 7, 0).version, 1U);
  // b = -1, p = 1 - (-1 + 0.5 * -1)
  EXPECT_EQ(first_value(c, id, 1), 2.5F);
  EXPECT_EQ(first_value(c, id, 1, 1), -1.0F);
  EXPECT_EQ(first_value(c, id, 0), 1.0F);
  const auto again = push_step(c, id, 7, 0);  // as after a lost answer
  EXPECT_EQ(again.outcome, wire::PushOutcome::kContained);
  EXPECT_EQ(again.version, 1U);
  EXPECT_EQ(push_step(c, id, 6, 0).outcome, wire::PushOutcome::kSuperseded);
  EXPECT_EQ(push_step(c, id, 8, 9).outcome, wire::PushOutcome::kFuture);
  EXPECT_EQ(push_step(c, id, 8, 1).outcome, wire::PushOutcome::kNotStaged);
}

TEST_F(StoreRequests, VersionsOutliveTheProcess) {
  start_with_models();
  auto c = connect();
  const uint64_t id = create(c);
  push(c, id, 1, -1.0F);
  EXPECT_EQ(push_step(c, id, 1, 0).version, 1U);
  service_.stop();
  ASSERT_TRUE(c.closed_within(5 * kSecond));
  auto options = test_options();
  ASSERT_TRUE(service_.open());
  ASSERT_TRUE(service_.start(options, port()));
  auto after = connect();
  EXPECT_EQ(first_value(after, id, 1), 2.5F);
  EXPECT_EQ(push_step(after, id, 1, 0).outcome, wire::PushOutcome::kContained);
}

TEST_F(StoreRequests, RefusedRequestsLeaveTheConnectionOpen) {
  start_with_models();
  auto c = connect();
  const uint64_t id = create(c);
  c.send(wire::Pull{.model = id, .version = 9});
  EXPECT_EQ(c.expect<wire::Failed>().code, Errc::kBadView);
  c.send(wire::Pull{.model = id + 1});
  EXPECT_EQ(c.expect<wire::Failed>().code, Errc::kUnknownSession);
  c.send(wire::Push{.model = id + 1, .bytes = kElements * 4});
  send_values(c, 1);
  EXPECT_EQ(c.expect<wire::Failed>().code, Errc::kUnknownSession);
  c.send(wire::Push{.model = id, .shard = 5, .bytes = kElements * 4});
  send_values(c, 1);
  EXPECT_EQ(c.expect<wire::Failed>().code, Errc::kBadView);
  c.send(wire::Install{.model = id, .bytes = kElements * 4});
  send_values(c, 9);
  EXPECT_EQ(c.expect<wire::Failed>().code, Errc::kMismatch);  // it has been started
  c.send(wire::ModelQuery{.kind = wire::ModelQueryKind::kCreate, .name = "m", .bytes = 2});
  const std::string empty = "{}";
  send_body(c, std::as_bytes(std::span(empty)));
  EXPECT_EQ(c.expect<wire::Failed>().code, Errc::kInvalidArgument);
  EXPECT_EQ(first_value(c, id, 0), 1.0F);
}

TEST_F(StoreRequests, AModelWithoutItsFirstVersionDoesNotStart) {
  start_with_models();
  auto c = connect();
  c.send(wire::StartModel{.model = make(c)});
  const auto failed = c.expect<wire::Failed>();
  EXPECT_EQ(failed.code, Errc::kBadView);
  EXPECT_EQ(failed.text, R"(version 0 of model "m" has not been installed)");
}

TEST_F(StoreRequests, OnlyTheJobOfAModelChangesIt) {
  start_with_models();
  auto mine = connect();
  const uint64_t id = create(mine);
  auto other = connect("other");
  const auto expect_refused = [&] {
    const auto failed = other.expect<wire::Failed>();
    EXPECT_EQ(failed.code, Errc::kUnauthenticated);
    EXPECT_EQ(failed.text, R"(model "m" belongs to job "default"; this client is of job "other")");
  };
  EXPECT_EQ(first_value(other, id, 0), 1.0F) << "all jobs read it";
  other.send(wire::Push{.model = id, .worker = 1, .number = 1, .bytes = kElements * 4});
  send_values(other, 1.0F);
  expect_refused();
  other.send(wire::PushStep{.model = id,
                            .worker = 1,
                            .number = 1,
                            .base = 0,
                            .weight_bits = std::bit_cast<uint32_t>(1.0F),
                            .timeout_ms = 1000});
  other.send(wire::StartModel{.model = id});
  other.send(wire::ModelQuery{.kind = wire::ModelQueryKind::kDelete, .name = "m"});
  other.send(
      wire::ModelQuery{.kind = wire::ModelQueryKind::kCreate, .name = "m", .bytes = kSpecification.size()});
  send_body(other, std::as_bytes(std::span(kSpecification)));
  for (int i = 0; i < 4; ++i) expect_refused();
  push(mine, id, 1, 1.0F);
  EXPECT_EQ(push_step(mine, id, 1, 0).outcome, wire::PushOutcome::kContained);
}

TEST_F(StoreRequests, BrokenRulesCloseTheConnection) {
  start_with_models();
  auto creator = connect();
  const uint64_t id = create(creator);
  const std::vector<float> values(kElements, 1.0F);
  const auto bytes = std::as_bytes(std::span(values));
  const wire::Push good{.model = id, .worker = 1, .number = 1, .bytes = bytes.size()};
  const std::vector<std::function<void(ScriptedConnection&)>> cases = {
      [&](auto& c) { c.send(wire::Step{.model = id, .generation = 1, .version = 1, .bytes = 20}); },
      [&](auto& c) { c.send(wire::Committed{.model = id, .version = 1}); },
      [&](auto& c) { c.send(wire::CopyVersion{.model = id, .generation = 1, .version = 1}); },
      [&](auto& c) { c.send_bytes(frame_of_data(0, bytes)); },
      [&](auto& c) {
        auto push = good;
        push.bytes = 8;
        c.send(push);
      },
      [&](auto& c) {
        auto push = good;
        push.dtype = wire::DType::kI32;
        c.send(push);
      },
      [&](auto& c) { c.send(good), c.send_bytes(frame_of_data(4, bytes)); },
      [&](auto& c) { c.send(good), c.send_bytes(frame_of_data(0, bytes.first(8))); },
      [&](auto& c) {
        auto frame = frame_of_data(0, bytes);
        frame.back() ^= std::byte{1};
        c.send(good), c.send_bytes(frame);
      },
      [&](auto& c) {
        auto push = good;
        push.dtype = wire::DType::kInt8Block;
        push.bytes = wire::kBlockBytes;
        c.send(push), c.send_bytes(frame_of_data(0, std::vector(wire::kBlockBytes, std::byte{0x80})));
      },
      [&](auto& c) { c.send(wire::Pull{.model = id, .array = 2}); },
      [&](auto& c) { c.send(wire::Pull{.model = id, .array = 1, .early = 1}); },
      [&](auto& c) { c.send(wire::Pull{.model = id, .early = 2}); },
      [&](auto& c) { c.send(wire::PushStep{.model = id, .weight_bits = 0x3f800000, .early = 2}); },
      [&](auto& c) { c.send(wire::PushStep{.model = id, .weight_bits = 0x7fc00000}); },
      [&](auto& c) { c.send(wire::ModelQuery{.bytes = 1}); },
      [&](auto& c) {
        c.send(wire::ModelQuery{.kind = wire::ModelQueryKind::kCreate, .bytes = store::kMaxModelText + 1});
      },
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    auto c = connect();
    cases[i](c);
    EXPECT_TRUE(c.closed_within(5 * kSecond)) << "case " << i;
  }
  EXPECT_EQ(first_value(creator, id, 0), 1.0F);
}

TEST_F(StoreRequests, AnOwnerRefusesAnOldStep) {
  start_with_models();
  auto c = connect();
  const uint64_t id = create(c);
  push(c, id, 1, -1.0F);
  auto leader = connect(wire::kReducerJob);
  std::array<std::byte, wire::kStepPushBytes> pushes{};
  store_le(pushes.data(), uint64_t{1});
  store_le(pushes.data() + 8, uint64_t{1});
  store_le(pushes.data() + 16, std::bit_cast<uint32_t>(1.0F));
  const auto step = [&](uint64_t revision, uint64_t attempt) {
    leader.send(wire::Step{.model = id,
                           .generation = 1,
                           .revision = revision,
                           .attempt = attempt,
                           .version = 1,
                           .bytes = pushes.size()});
    send_body(leader, pushes);
  };
  step(1000, 5);
  (void)leader.expect<wire::Done>();
  step(1000, 4);
  EXPECT_EQ(leader.expect<wire::Failed>().code, Errc::kBadView);
  step(0, 9);
  EXPECT_EQ(leader.expect<wire::Failed>().code, Errc::kBadView);
  step(1001, 1);
  (void)leader.expect<wire::Done>();
  // Prepared is not committed: nobody reads it.
  c.send(wire::Pull{.model = id, .version = 1});
  EXPECT_EQ(c.expect<wire::Failed>().code, Errc::kBadView);
  leader.send(wire::Committed{.model = id, .version = 1});
  (void)leader.expect<wire::Done>();
  step(1002, 1);  // of a leader that does not know that another has made this version
  EXPECT_EQ(leader.expect<wire::Failed>().code, Errc::kBadView);
}

// The deltas of late pushes take no memory until their workers push again.
TEST_F(StoreRequests, AStepForgetsTheDeltasOfLatePushes) {
  start_with_models();
  std::array<ScriptedConnection, 2> workers{connect(), connect()};
  const uint64_t id = create(workers[0], kSync, 1);
  const auto send = [&](ScriptedConnection& c, uint64_t worker, uint64_t base) {
    c.send(wire::PushStep{.model = id,
                          .worker = worker,
                          .number = 1,
                          .base = base,
                          .weight_bits = std::bit_cast<uint32_t>(1.0F),
                          .timeout_ms = 5000});
  };
  for (uint64_t worker = 0; worker < 3; ++worker) {
    workers[0].send(wire::Push{.model = id, .worker = worker, .number = 1, .bytes = kElements * 4});
    send_values(workers[0], 1.0F);
    (void)workers[0].expect<wire::Done>();
  }
  for (uint64_t worker = 0; worker < 2; ++worker) send(workers[worker], worker, 0);
  for (ScriptedConnection& c : workers)
    EXPECT_EQ(c.expect<wire::PushAnswer>().outcome, wire::PushOutcome::kContained);
  // Workers 2 and 3 make a quorum, and the owner has the delta of neither.
  for (uint64_t worker = 0; worker < 2; ++worker) send(workers[worker], worker + 2, 1);
  for (ScriptedConnection& c : workers)
    EXPECT_EQ(c.expect<wire::PushAnswer>().outcome, wire::PushOutcome::kNotStaged);
}

// A client that has lost its connection asks again while the old request still waits. Neither may be told
// that a version contains the push, also if one comes after the step.
TEST_F(StoreRequests, AllWhoWaitForAPushLearnThatItsDeltaIsGone) {
  start_with_models();
  std::array<ScriptedConnection, 2> same{connect(), connect()};
  auto other = connect();
  const uint64_t id = create(other, kSync, 1);
  const auto ask = [&](ScriptedConnection& c, uint64_t worker) {
    c.send(wire::PushStep{.model = id,
                          .worker = worker,
                          .number = 1,
                          .base = 0,
                          .weight_bits = std::bit_cast<uint32_t>(1.0F),
                          .timeout_ms = 1000});
  };
  for (ScriptedConnection& c : same) ask(c, 1);
  ask(other, 2);  // the quorum: a step begins, and the owner has no delta
  for (ScriptedConnection* c : {&same[0], &same[1], &other}) {
    const auto frame = c->receive();
    ASSERT_TRUE(frame);
    if (frame->header.type == wire::FrameType::kFailed) continue;  // the timeout
    wire::PushAnswer answer;
    ASSERT_TRUE(wire::decode_body(std::span<const std::byte>(frame->payload), answer).ok());
    EXPECT_EQ(answer.outcome, wire::PushOutcome::kNotStaged);
  }
}

TEST(ModelMonitor, BoundsItsList) {
  const auto spec = store::parse_model(kSync);
  ASSERT_TRUE(spec);
  store::ModelMonitor monitor(1000);
  std::vector<std::shared_ptr<store::ModelCounters>> models;
  for (char name = 'z'; name > 'f'; --name) {
    auto named = *spec;
    named.name = name;
    models.push_back(std::make_shared<store::ModelCounters>(named, store::ModelLayout(named, 1)));
    monitor.add(models.back());
  }
  models.back()->set_unavailable(std::string(5000, '\xff'));
  auto status = nlohmann::json::parse(monitor.status_json(100'000));
  EXPECT_EQ(status["models"].size(), store::ModelMonitor::kMaxListed);
  EXPECT_EQ(status["store"]["models"], 20);
  EXPECT_EQ(status["models"][0]["name"], "g");
  EXPECT_TRUE(status["models"][0].contains("unavailable"));
  models.pop_back();
  const std::string brief = monitor.status_json(1500);
  EXPECT_LT(brief.size(), 2200U);
  status = nlohmann::json::parse(brief);
  EXPECT_EQ(status["store"]["models"], 19);
  EXPECT_EQ(status["models"][0]["name"], "h");
}

TEST_F(StoreRequests, AReducerWithoutModelsRefuses) {
  start();
  ScriptedConnection c(port());
  wire::Hello hello;
  hello.purpose = wire::Purpose::kStore;
  hello.ranks = 1;
  EXPECT_EQ(c.handshake(hello).features & wire::kFeatureStore, 0U);
  c.send(wire::StoreRequest{});
  EXPECT_EQ(c.expect<wire::Refused>().code, Errc::kUnsupported);
}

// Two buffers are reserved, and the limit leaves room for one more.
TEST(DeltaBuffers, PushesBeyondTheMemoryLimitWait) {
  const auto budget = std::make_shared<store::MemoryBudget>(kElements * 4);
  const auto buffers = std::make_shared<store::DeltaBuffers>(kElements, 2, budget);
  std::vector<store::DeltaBuffer> held;
  for (int i = 0; i < 3; ++i) {
    auto taken = buffers->take(1, 0);
    ASSERT_TRUE(taken);
    held.push_back(std::move(*taken));
  }
  EXPECT_EQ(budget->used(), kElements * 4);
  const auto refused = buffers->take(1, 0);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kTooMany);
  EXPECT_EQ(
      refused.error().text,
      "3 pushes wait for a step, 2 are reserved, and one more of 256 bytes would exceed the memory limit "
      "of 256 bytes");
  std::thread push([&] { held.erase(held.begin()); });
  EXPECT_TRUE(buffers->take(1, monotonic_now() + 10 * kSecond));
  push.join();
  EXPECT_TRUE(buffers->take(2, 0)) << "a second shard has a reserve, too";
  held.clear();
  EXPECT_EQ(budget->used(), 0U);
  EXPECT_EQ(buffers->in_use(), 0U);
}

TEST(DeltaBuffers, MemoryOfAnotherModelEndsTheWait) {
  const auto budget = std::make_shared<store::MemoryBudget>(kElements * 4);
  const auto first = std::make_shared<store::DeltaBuffers>(kElements, 0, budget);
  const auto second = std::make_shared<store::DeltaBuffers>(kElements, 0, budget);
  auto held = first->take(1, 0);
  ASSERT_TRUE(held);
  ASSERT_FALSE(second->take(1, 0));
  const Nanos deadline = monotonic_now() + 20 * kSecond;
  std::thread push([&] { held->reset(); });
  EXPECT_TRUE(second->take(1, deadline));
  EXPECT_LT(monotonic_now(), deadline);
  push.join();
}

}  // namespace
}  // namespace sluice::test
