// What one session on a lane must do, written from PROTOCOL.md sections 5, 7, 9 and 10 and lane_messages.h
// without a thought for speed: every contribution is kept, every result computed at once by the scalar
// reference. The script settles the lane after each of its actions, so the model says exactly which frames
// leave the lane, which connections close and why.
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

namespace sluice::fuzz {

// A RESULT as it must arrive.
struct ExpectedResult {
  wire::FrameHeader header{};  // flags, payload_crc and ext_len8 as sent
  wire::ResultInfo info{};
  Bytes payload{};
};

// The result of contributions in order of rank: groups of eight in order, then the group results in order.
[[nodiscard]] Bytes sum_in_order(const wire::FrameHeader& header, std::span<const std::byte* const> payloads);

class LaneModel {
 public:
  explicit LaneModel(const reducer::SessionPlan& plan);

  struct Link {
    explicit Link(uint32_t max_payload) : stream(max_payload) {}
    bool attached = false;
    bool committed = false;
    bool left = false;
    StreamModel stream;
    uint64_t next = 0;  // sequence of the contribution expected next
    // Reasons with which the lane may have closed it; empty while it is open. More than one where the
    // kernel's timing decides.
    std::vector<Errc> closed;
    bool closes_late = false;  // after the lane has sent what it still had for it
    Nanos last_received = 0;
    uint64_t results_put = 0;              // the lane owes this many results in all
    std::deque<ExpectedResult> to_arrive;  // of these, not yet seen by the client
    [[nodiscard]] bool open() const { return attached && closed.empty(); }
  };

  void attach(uint32_t rank);
  void never_attached(uint32_t rank);
  // The lane reads `bytes` in one turn; every result put to this rank before has been handed to the network.
  void receive(uint32_t rank, std::span<const std::byte> bytes, Nanos now);
  // The client ended its side, having read everything put to it or not; or closed with bytes possibly unread.
  void ended(uint32_t rank, bool unread);
  void vanished(uint32_t rank);
  void rank_left(uint32_t rank);
  void end() { ending_ = true; }
  void close_now();
  void pass_time(Nanos now, Nanos frame_timeout);

  [[nodiscard]] Link& link(uint32_t rank) { return links_[rank]; }
  [[nodiscard]] const std::vector<Link>& links() const { return links_; }
  [[nodiscard]] bool ending() const { return ending_; }
  struct Failure {
    Errc code;
    uint32_t rank;
  };
  [[nodiscard]] const std::optional<Failure>& failure() const { return failure_; }
  [[nodiscard]] uint64_t results() const { return next_result_; }
  // For LaneSession::missing(): the ranks the oldest chunk that has begun waits for.
  [[nodiscard]] std::vector<uint32_t> missing() const;

 private:
  struct Chunk {
    wire::FrameHeader reference;
    Nanos first_arrival = 0;
    Nanos last_arrival = 0;
    uint32_t last_rank = 0;
    std::map<uint32_t, Bytes> payloads;
  };

  [[nodiscard]] Status admit(const Link& link, const wire::FrameHeader& h, uint64_t credit) const;
  [[nodiscard]] Status frame(uint32_t rank, const StreamModel::Step& step, Nanos now);
  void contributed(uint32_t rank, const StreamModel::Step& step, Nanos now);
  void fold();
  [[nodiscard]] Bytes sum(const Chunk& chunk) const;
  void fail(Errc code, uint32_t rank);

  const reducer::SessionPlan plan_;
  std::vector<Link> links_;
  std::map<uint64_t, Chunk> chunks_;  // by sequence, of those without a result
  uint64_t next_result_ = 0;
  uint64_t incarnation_ = 0;
  bool ending_ = false;
  std::optional<Failure> failure_;
};

}  // namespace sluice::fuzz
