// A lane with one session, driven by hand: n scripted ranks on the other ends of inproc connections, a clock
// that the test moves, no thread and no socket.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "core/crc32c.h"
#include "reducer/lane/lane.h"
#include "transport/inproc/inproc_network.h"
#include "wire/messages.h"

namespace sluice::test {

// One rank's end: sends what the test says, keeps what arrives.
class ScriptedRank final : public transport::Handler {
 public:
  struct Arrived {
    wire::FrameHeader header;
    std::vector<std::byte> extensions;
    std::vector<std::byte> payload;
  };

  transport::Placement on_header(transport::Endpoint&, const wire::FrameHeader& header,
                                 std::span<const std::byte>) noexcept override {
    landing_.resize(header.length);
    return {.status = Errc::kOk, .payload = landing_.data()};
  }
  void on_frame(transport::Endpoint&, const wire::FrameHeader& header, std::span<const std::byte> extensions,
                std::span<std::byte> payload) noexcept override {
    arrived.push_back({header, {extensions.begin(), extensions.end()}, {payload.begin(), payload.end()}});
  }
  void on_sent(transport::Endpoint&, transport::Cookie, Status) noexcept override {
    if (!held_.empty()) held_.pop_front();
  }
  void on_closed(transport::Endpoint&, Errc reason) noexcept override {
    endpoint = nullptr;
    closed = reason;
  }

  // Sends a frame; the payload is kept until it is sent.
  Status send(wire::FrameHeader h, std::vector<std::byte> payload, std::vector<std::byte> extensions = {}) {
    if (endpoint == nullptr) return Errc::kClosed;
    h.length = static_cast<uint32_t>(payload.size());
    h.ext_len8 = static_cast<uint8_t>(extensions.size() / 8);
    h.flags |= wire::kFlagPayloadCrc;
    h.payload_crc = crc32c(payload);
    held_.push_back(std::move(payload));
    return endpoint->put(h, extensions, held_.back(), 0);
  }

  transport::Endpoint* endpoint = nullptr;
  std::vector<Arrived> arrived;
  std::optional<Errc> closed;

 private:
  std::vector<std::byte> landing_;
  std::deque<std::vector<std::byte>> held_;
};

class LaneRig {
 public:
  static constexpr uint64_t kIncarnation = 77;

  explicit LaneRig(uint32_t ranks, uint32_t slots = 4, uint32_t slot_bytes = 4096, bool survives = false);
  ~LaneRig();

  // Turns lane and ranks, but those that are blocked, until nothing moves.
  void settle();
  // A rank that is blocked takes nothing in: what is put to it is not given back.
  void block(uint32_t rank, bool blocked = true) { blocked_[rank] = blocked; }
  template <typename M>
  Status send(uint32_t rank, const M& message) {
    const auto body = wire::encode_body(message);
    return ranks[rank]->send(wire::control_header(M::kType, body, plan.handle), body);
  }
  void commit(uint32_t rank);
  void commit_all();
  // Gives the lane a new connection of that rank, as the conductor would; `ranks[rank]` is its other end from
  // the next settle() on, and the old one is the last of `retired`.
  void connect_again(uint32_t rank);
  // The same, and RESUME on it in `view`; settled.
  void resume(uint32_t rank, uint64_t results_held);
  void advance(Nanos by) { now += by; }

  // A well-formed contribution of `values` (f32, sum) at this sequence; fields can be changed before it is
  // sent.
  [[nodiscard]] wire::FrameHeader header(uint64_t sequence, size_t count,
                                         wire::DType dtype = wire::DType::kF32,
                                         wire::Op op = wire::Op::kSum) const;
  Status contribute(uint32_t rank, uint64_t sequence, const std::vector<float>& values,
                    wire::Op op = wire::Op::kSum);
  [[nodiscard]] static std::vector<float> floats(const std::vector<std::byte>& bytes);
  [[nodiscard]] static std::vector<std::byte> bytes(const std::vector<float>& values);

  // Results that arrived on this rank's present connection.
  [[nodiscard]] std::vector<ScriptedRank::Arrived> results(uint32_t rank) const;
  // The lane's events so far, taken.
  [[nodiscard]] std::vector<reducer::LaneEvent> events();

  Nanos now = kSecond;
  const reducer::SessionPlan plan;
  wire::ViewCommit view;  // that header() and resume() speak of
  std::unique_ptr<transport::inproc::Network> network;
  std::vector<std::unique_ptr<transport::Context>> far;  // a context per rank
  std::unique_ptr<reducer::Lane> lane;
  std::unique_ptr<reducer::LaneSession> session;
  std::vector<std::unique_ptr<ScriptedRank>> ranks;
  std::vector<std::unique_ptr<ScriptedRank>> retired;
  bool refuse_to_adopt = false;  // what is given with kAttach

 private:
  transport::Endpoint* connect(uint32_t rank, transport::Handler& near_handler,
                               const transport::EndpointOptions& options);
  std::vector<bool> blocked_;
};

}  // namespace sluice::test
