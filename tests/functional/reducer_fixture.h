// Class ReducerTest runs a real reducer in this process, on a port chosen by the system.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/clock.h"
#include "reducer/reducer.h"
#include "tests/support/scripted_client.h"

namespace sluice::test {

class ReducerTest : public ::testing::Test {
 protected:
  // With deadlines that pass only if a test waits for them, even if its thread is stopped for some seconds. A
  // test of a deadline sets it.
  static reducer::ReducerOptions test_options() {
    reducer::ReducerOptions o;
    o.listen_port = 0;
    o.lanes = 2;
    o.memory_limit = 64 * kMiB;
    o.handshake_timeout = 10 * kSecond;
    o.frame_timeout = 10 * kSecond;
    o.heartbeat = 100 * kMillisecond;
    o.peer_timeout = 60 * kSecond;
    o.join_timeout = 20 * kSecond;
    o.linger_timeout = 1 * kSecond;
    o.drain_timeout = 20 * kSecond;
    return o;
  }

  void start(const reducer::ReducerOptions& options = test_options()) {
    auto started = reducer::Reducer::start(options);
    ASSERT_TRUE(started) << started.error().text;
    reducer = std::move(*started);
  }
  [[nodiscard]] uint16_t port() const { return reducer->port(); }
  [[nodiscard]] nlohmann::json status() const { return nlohmann::json::parse(reducer->status_json()); }

  // Polls the status until the condition holds; false at the deadline.
  [[nodiscard]] bool eventually(const std::function<bool(const nlohmann::json&)>& condition,
                                Nanos within = 10 * kSecond) const {
    const Nanos deadline = monotonic_now() + within;
    while (!condition(status())) {
      if (monotonic_now() >= deadline) return false;
      std::this_thread::yield();
    }
    return true;
  }
  [[nodiscard]] bool eventually_counted(const char* table, const char* reason, uint64_t at_least = 1) const {
    return eventually(
        [&](const nlohmann::json& j) { return j[table].value(reason, uint64_t{0}) >= at_least; });
  }
  [[nodiscard]] bool eventually_empty() const {
    return eventually([](const nlohmann::json& j) {
      return j["sessions"]["open"] == 0 && j["sessions"]["ending"] == 0 && j["memory"]["reserved_bytes"] == 0;
    });
  }

  // True once the reducer has run for that long.
  [[nodiscard]] bool run_for(double seconds) const {
    const auto uptime = [](const nlohmann::json& j) { return j["uptime_seconds"].get<double>(); };
    const double end = uptime(status()) + seconds;
    return eventually([&](const nlohmann::json& j) { return uptime(j) > end; });
  }
  // A rank that has joined.
  [[nodiscard]] ScriptedMember join(const ScriptedMember::Shape& shape) const {
    ScriptedMember member(port(), shape);
    member.join();
    member.expect_joined();
    return member;
  }
  // The answer to a rank whose JOIN is refused.
  [[nodiscard]] wire::Refused refusal(const ScriptedMember::Shape& shape) const {
    ScriptedMember member(port(), shape);
    member.join();
    return member.control.expect<wire::Refused>();
  }
  // The id by which the session knows the reducer.
  [[nodiscard]] uint64_t id_for(uint8_t session) const {
    ScriptedConnection c(port());
    wire::Hello hello;
    hello.session = session_id(session);
    hello.purpose = wire::Purpose::kStatus;
    return c.handshake(hello).reducer;
  }
  static void disconnect(ScriptedMember& rank) {
    rank.lanes.clear();
    rank.control.close();
  }
  // Sends heartbeats until the rank gets ABORT.
  static wire::Abort beat_until_abort(ScriptedMember& rank) {
    wire::Abort abort;
    for (;;) {
      rank.control.send(wire::Heartbeat{}, rank.joined.handle);
      const auto frame = rank.control.receive();
      if (!frame) throw std::runtime_error("the connection closed without ABORT");
      if (frame->header.type != wire::FrameType::kAbort) continue;
      EXPECT_TRUE(wire::decode_body(std::span<const std::byte>(frame->payload), abort).ok());
      return abort;
    }
  }

  std::unique_ptr<reducer::Reducer> reducer;
};

}  // namespace sluice::test
