// A lane with one session and scripted ranks on inproc connections.
//
// The test drives the lane and controls the clock. There are no threads and no sockets.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "core/crc32c.h"
#include "reducer/lane/lane.h"
#include "tests/support/transport/inproc_network.h"
#include "wire/messages.h"

namespace sluice::test {

// Class ScriptedRank is a rank's end of a lane connection. It sends what the test requests and records what
// arrives.
class ScriptedRank final : public transport::Handler {
 public:
  struct ReceivedFrame {
    wire::FrameHeader header;
    std::vector<std::byte> extensions;
    std::vector<std::byte> payload;
  };

  transport::ReceiveTarget on_header(transport::Endpoint&, const wire::FrameHeader& header,
                                     std::span<const std::byte>) noexcept override {
    receive_buffer_.resize(header.length);
    return {.status = Errc::kOk, .payload = receive_buffer_.data()};
  }
  void on_frame(transport::Endpoint&, const wire::FrameHeader& header, std::span<const std::byte> extensions,
                std::span<std::byte> payload) noexcept override {
    arrived.push_back({header, {extensions.begin(), extensions.end()}, {payload.begin(), payload.end()}});
  }
  void on_sent(transport::Endpoint&, transport::Cookie, Status) noexcept override {
    if (!sending_.empty()) sending_.pop_front();
  }
  void on_closed(transport::Endpoint&, Errc reason) noexcept override {
    endpoint = nullptr;
    closed = reason;
  }

  // Sends a frame and keeps the payload until it is sent.
  Status send(wire::FrameHeader h, std::vector<std::byte> payload, std::vector<std::byte> extensions = {}) {
    if (endpoint == nullptr) return Errc::kClosed;
    h.length = static_cast<uint32_t>(payload.size());
    h.ext_len8 = static_cast<uint8_t>(extensions.size() / 8);
    h.flags |= wire::kFlagPayloadCrc;
    h.payload_crc = crc32c(payload);
    sending_.push_back(std::move(payload));
    return endpoint->put(h, extensions, sending_.back(), 0);
  }

  transport::Endpoint* endpoint = nullptr;
  std::vector<ReceivedFrame> arrived;
  std::optional<Errc> closed;

 private:
  std::vector<std::byte> receive_buffer_;
  std::deque<std::vector<std::byte>> sending_;
};

class LaneTestBed {
 public:
  static constexpr uint64_t kIncarnation = 77;

  explicit LaneTestBed(uint32_t ranks, uint32_t slots = 4, uint32_t slot_bytes = 4096,
                       bool fault_tolerant = false, bool health = false,
                       wire::SumOrder order = wire::SumOrder::kTree);
  ~LaneTestBed();

  // Runs the lane and the ranks that are not blocked until all are idle.
  void settle();
  // A blocked rank receives nothing, so frames for it stay in the transport.
  void block(uint32_t rank, bool blocked = true) { blocked_[rank] = blocked; }
  template <typename M>
  Status send(uint32_t rank, const M& message) {
    const auto body = wire::encode_body(message);
    return ranks[rank]->send(wire::control_header(M::kType, body, plan.handle), body);
  }
  void commit(uint32_t rank);
  void commit_all();
  // Hands the lane a new connection of the rank, like the control loop. `ranks[rank]` becomes its other end
  // at the next settle(); the old end moves to `retired`.
  void reconnect(uint32_t rank);
  void send_resume(uint32_t rank, uint64_t results_held);  // RESUME in `view`
  // reconnect(), then RESUME in `view` and settle().
  void resume(uint32_t rank, uint64_t results_held);
  void advance(Nanos by) { now += by; }

  // The header of a valid contribution in `view`; the test may change fields before it sends it.
  [[nodiscard]] wire::FrameHeader header(uint64_t sequence, size_t count,
                                         wire::DType dtype = wire::DType::kF32,
                                         wire::Op op = wire::Op::kSum) const;
  Status contribute(uint32_t rank, uint64_t sequence, const std::vector<float>& values,
                    wire::Op op = wire::Op::kSum);
  [[nodiscard]] static std::vector<float> floats(const std::vector<std::byte>& bytes);
  [[nodiscard]] static std::vector<std::byte> bytes(const std::vector<float>& values);

  // Results that arrived on the rank's current connection.
  [[nodiscard]] std::vector<ScriptedRank::ReceivedFrame> results(uint32_t rank) const;
  // Takes the lane's events.
  [[nodiscard]] std::vector<reducer::LaneEvent> events();

  Nanos now = kSecond;
  const reducer::SessionPlan plan;
  wire::ViewCommit view;  // used by header() and resume()
  std::unique_ptr<transport::inproc::Network> network;
  std::vector<std::unique_ptr<transport::Context>> far;  // a context per rank
  reducer::FairPool fair;                                // without members
  std::unique_ptr<reducer::Lane> lane;
  std::unique_ptr<reducer::LaneSession> session;
  std::vector<std::unique_ptr<ScriptedRank>> ranks;
  std::vector<std::unique_ptr<ScriptedRank>> retired;
  bool refuse_to_adopt = false;  // makes the adoption of a socket fail

 private:
  transport::Endpoint* connect(uint32_t rank, transport::Handler& near_handler,
                               const transport::EndpointOptions& options);
  std::vector<bool> blocked_;
};

}  // namespace sluice::test
