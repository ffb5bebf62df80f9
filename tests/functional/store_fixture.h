// Fixture for requests to the models of a reducer, frame by frame (protocol.md section 16).
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "cli/process/store_service.h"
#include "core/crc32c.h"
#include "tests/functional/reducer_fixture.h"
#include "tests/support/temporary_folder.h"

namespace sluice::test {

inline constexpr uint64_t kElements = 64;
inline const std::string kSync =
    R"({"name": "s", "versions": 2, "mode": {"kind": "sync", "quorum": 2, "grace_ms": 0}, "rule": {"kind": "add"}, )"
    R"("tensors": [{"name": "w", "dtype": "f32", "shape": [3]}]})";
inline const std::string kSpecification =
    R"({"name": "m", "versions": 2, "mode": {"kind": "async"}, "rule": {"kind": "nesterov", "learning_rate": 1, )"
    R"("momentum": 0.5}, "tensors": [{"name": "w", "dtype": "f32", "shape": [3]}]})";

inline std::vector<std::byte> frame_of_data(uint64_t offset, std::span<const std::byte> payload) {
  wire::FrameHeader header;
  header.type = wire::FrameType::kModelData;
  header.flags = wire::kFlagPayloadCrc;
  header.chunk = offset;
  header.length = static_cast<uint32_t>(payload.size());
  header.payload_crc = crc32c(payload);
  std::vector<std::byte> frame(wire::kHeaderBytes);
  wire::encode_header(header, {}, std::span(frame).first<wire::kHeaderBytes>());
  frame.insert(frame.end(), payload.begin(), payload.end());
  return frame;
}

class StoreRequests : public ReducerTest {
 protected:
  explicit StoreRequests(cli::StoreServiceOptions options = {}) : service_(in_folder(std::move(options))) {}
  ~StoreRequests() override {
    service_.stop();
    reducer.reset();
  }

  void start_with_models(reducer::ReducerOptions options = test_options()) {
    service_.attach(options);
    start(options);
    const auto started = service_.start(options, port());
    ASSERT_TRUE(started) << started.error().text;
  }
  // Up to the request, to which there is an answer.
  [[nodiscard]] ScriptedConnection request(const std::string& job = "default", const std::string& tenant = {},
                                           uint64_t features = 0) const {
    ScriptedConnection c(port());
    wire::Hello hello;
    hello.purpose = wire::Purpose::kStore;
    hello.ranks = 1;
    hello.job = job;
    hello.tenant = tenant;
    hello.features = features;
    EXPECT_NE(c.handshake(hello).features & wire::kFeatureStore, 0U);
    c.send(wire::StoreRequest{});
    return c;
  }
  [[nodiscard]] ScriptedConnection connect(const std::string& job = "default", const std::string& tenant = {},
                                           uint64_t features = 0) const {
    ScriptedConnection c = request(job, tenant, features);
    EXPECT_NE(c.expect<wire::StoreReady>().store, 0U);
    return c;
  }
  static void send_body(ScriptedConnection& c, std::span<const std::byte> body) {
    c.send_bytes(frame_of_data(0, body));
  }
  static void send_values(ScriptedConnection& c, float value) {
    const std::vector<float> values(kElements, value);
    send_body(c, std::as_bytes(std::span(values)));
  }
  static nlohmann::json receive_json(ScriptedConnection& c) {
    const auto answer = c.expect<wire::ModelAnswer>();
    const auto body = c.receive();
    if (!body || body->payload.size() != answer.bytes) throw std::runtime_error("no body");
    return nlohmann::json::parse(
        std::string(reinterpret_cast<const char*>(body->payload.data()), body->payload.size()));
  }
  // Creates the model; returns its id.
  static uint64_t make(ScriptedConnection& c, const std::string& specification = kSpecification) {
    c.send(
        wire::ModelQuery{.kind = wire::ModelQueryKind::kCreate, .name = "m", .bytes = specification.size()});
    send_body(c, std::as_bytes(std::span(specification)));
    return receive_json(c)["model"].get<uint64_t>();
  }
  // Creates and starts the model with ones; returns its id.
  static uint64_t create(ScriptedConnection& c, const std::string& specification = kSpecification,
                         uint8_t arrays = 2) {
    const uint64_t id = make(c, specification);
    for (uint8_t array = 0; array < arrays; ++array) {
      c.send(wire::Install{.model = id, .array = array, .bytes = kElements * 4});
      send_values(c, array == 0 ? 1.0F : 0.0F);
      (void)c.expect<wire::Done>();
    }
    c.send(wire::StartModel{.model = id});
    (void)c.expect<wire::Done>();
    return id;
  }
  static void push(ScriptedConnection& c, uint64_t id, uint64_t number, float value) {
    c.send(wire::Push{.model = id, .worker = 1, .number = number, .bytes = kElements * 4});
    send_values(c, value);
    (void)c.expect<wire::Done>();
  }
  static wire::PushAnswer push_step(ScriptedConnection& c, uint64_t id, uint64_t number, uint64_t base) {
    c.send(wire::PushStep{.model = id,
                          .worker = 1,
                          .number = number,
                          .base = base,
                          .weight_bits = std::bit_cast<uint32_t>(1.0F),
                          .timeout_ms = 5000});
    return c.expect<wire::PushAnswer>();
  }
  static float first_value(ScriptedConnection& c, uint64_t id, uint64_t version, uint8_t array = 0) {
    c.send(wire::Pull{.model = id, .version = version, .array = array});
    if (c.expect<wire::PullAnswer>().bytes != kElements * 4) throw std::runtime_error("wrong size");
    const auto body = c.receive();
    float value = 0;
    std::memcpy(&value, body->payload.data(), sizeof value);
    return value;
  }

  TemporaryFolder folder_;
  cli::StoreService service_;

 private:
  [[nodiscard]] cli::StoreServiceOptions in_folder(cli::StoreServiceOptions options) const {
    options.folder = folder_.path() + "/state";
    return options;
  }
};

}  // namespace sluice::test
