#pragma once

#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "core/units.h"
#include "reducer/lane/lane_messages.h"
#include "reducer/slots/session_plan.h"
#include "tests/fuzz/stream_model.h"
#include "wire/extension.h"
#include "wire/message_limits.h"

namespace sluice::fuzz {

// A RESULT that must arrive.
struct ExpectedResult {
  wire::FrameHeader header{};  // flags, payload_crc and ext_len8 as sent
  wire::ResultInfo info{};
  std::optional<wire::Expanded> expanded{};
  Bytes payload{};
};

// The result of the contributions: of the whole tree, or sums in groups of eight, then over the groups.
[[nodiscard]] Bytes sum_in_order(const wire::FrameHeader& header, std::span<const std::byte* const> payloads,
                                 wire::SumOrder order);

// LaneModel is the reference model of one session on a lane, written from protocol.md sections 5 to 10
// and from lane_messages.h, without optimization. It keeps every contribution and computes each result at
// once with the scalar reference. A script settles the lane after each action, so the model knows exactly
// which frames the lane sends, and which connections it closes for which reason.
class LaneModel {
 public:
  explicit LaneModel(const reducer::SessionPlan& plan);

  struct Connection {
    explicit Connection(uint32_t max_payload) : stream(max_payload) {}
    bool attached = false;
    bool committed = false;
    bool left = false;
    StreamModel stream;
    uint64_t next = 0;  // next expected contribution sequence
    // The reasons with which the lane may have closed the connection; empty while it is open. Several where
    // the timing of the kernel decides.
    std::vector<Errc> closed;
    bool closes_after_sending = false;  // the lane closes it after sending its remaining frames
    Nanos last_received = 0;
    uint64_t results_owed = 0;                    // total number of results for this rank
    std::deque<ExpectedResult> expected_results;  // results that the client has not received yet
    [[nodiscard]] bool open() const { return attached && closed.empty(); }
  };

  void attach(uint32_t rank);
  void attach_failed(uint32_t rank);
  // The lane reads `bytes` in one poll. All earlier results for this rank have been handed to the network.
  void receive(uint32_t rank, std::span<const std::byte> bytes, Nanos now);
  // The client shut down its sending side, with or without unread results, or closed its socket.
  void sending_ended(uint32_t rank, bool unread);
  void connection_closed(uint32_t rank);
  void rank_left(uint32_t rank);
  void end() { ending_ = true; }
  void close_now();
  void pass_time(Nanos now, Nanos frame_timeout);

  [[nodiscard]] Connection& connection(uint32_t rank) { return connections_[rank]; }
  [[nodiscard]] const std::vector<Connection>& connections() const { return connections_; }
  [[nodiscard]] bool ending() const { return ending_; }
  struct Failure {
    Errc code;
    uint32_t rank;
  };
  [[nodiscard]] const std::optional<Failure>& failure() const { return failure_; }
  [[nodiscard]] uint64_t results() const { return next_result_; }
  // The expected LaneSession::missing(): the ranks that the oldest started chunk waits for.
  [[nodiscard]] std::vector<uint32_t> missing() const;

 private:
  struct Chunk {
    wire::FrameHeader reference;  // plain; the length is the chunk's
    uint32_t owner = wire::kNoRank;
    bool accepts_sparse = true;
    Nanos first_arrival = 0;
    Nanos last_arrival = 0;
    uint32_t last_rank = 0;
    std::map<uint32_t, Bytes> payloads;  // without encoding
  };

  [[nodiscard]] Status admit(uint32_t rank, const StreamModel::Step& step, uint64_t credit) const;
  [[nodiscard]] Status admit_payload(uint32_t rank, const StreamModel::Step& step) const;
  [[nodiscard]] Status frame(uint32_t rank, const StreamModel::Step& step, Nanos now);
  void on_contribution(uint32_t rank, const StreamModel::Step& step, const Bytes& payload, Nanos now);
  void fold();
  [[nodiscard]] ExpectedResult result(const Chunk& chunk, bool losses) const;
  [[nodiscard]] Bytes sum(const Chunk& chunk) const;
  void fail(Errc code, uint32_t rank);

  const reducer::SessionPlan plan_;
  std::vector<Connection> connections_;
  std::map<uint64_t, Chunk> chunks_;  // chunks without a result, by sequence
  uint64_t next_result_ = 0;
  uint64_t incarnation_ = 0;
  bool losses_ = false;  // a rank reported lost packets since the last result
  bool ending_ = false;
  std::optional<Failure> failure_;
};

}  // namespace sluice::fuzz
