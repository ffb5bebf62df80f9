// One lane connection seen from the worker: which chunks it still has to send, and which results it waits
// for. PROTOCOL.md section 9: sequence s uses slot s mod W; contribution s may go once result s - W is here.
//
//   free -> sent -> result received -> free
//
// Where a result is received is the chunk's business, not the connection's (chunk_ring.h): in the user's
// buffer where D more chunks of the same operation follow, else in the ring and copied; with send == recv
// always the ring, because half a result would be in the place of a contribution that may be asked for again.
// Where results are not kept, always the user's buffer, and so for device memory, which takes that. A reducer
// that can write by itself is lent that place as soon as the contribution is put: it has a result only once
// it has all of that.
//
// The connection may break and another take its place (PROTOCOL.md section 11): what the reducer lacks is put
// again from where it was. When the view changes all begins again at sequence 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gpu_client/engine/chunk_ring.h"
#include "gpu_client/engine/op_table.h"
#include "transport/loss_watch.h"
#include "transport/transport.h"

namespace sluice::engine {

class Exchange;

class Link final : public transport::Handler {
 public:
  // Bytes that an ABORT or RESUME_ACK on a lane connection may have.
  static constexpr size_t kControlBytes = 2 * kKiB;

  struct Plan {
    uint32_t index = 0;   // among all links of the exchange
    uint32_t handle = 0;  // the session's name at this reducer
    uint32_t slots = 0;   // W
    bool keep_results = true;
  };
  // Its share of the chunks: places of the period of the placement table that name this link, ascending.
  struct Share {
    std::vector<uint32_t> turns;
    uint32_t period = 0;  // size of that table
  };

  // Without a share of the chunks until restart().
  Link(Exchange& exchange, const Plan& plan);
  Link(Link&&) = delete;

  // A connection, with nothing put on it. Before begin() or resume().
  void bind(transport::Endpoint& ep) noexcept;
  [[nodiscard]] bool bound() const noexcept { return endpoint_ != nullptr; }
  [[nodiscard]] uint32_t slots() const noexcept { return plan_.slots; }
  // Puts COMMIT, the first frame of a session's first lane connections.
  [[nodiscard]] Status begin() noexcept;
  // Puts RESUME, the first frame of any later one.
  [[nodiscard]] Status resume() noexcept;
  // Nothing of the old view is in the transport's hands: no contribution, and no place that a result is being
  // received in. By another connection that chunk could be done, and its buffer the caller's again, while the
  // rest of the frame is still written.
  [[nodiscard]] bool quiet() const noexcept;
  // Lends no places until restart(), and asks for those back that the reducer has.
  void recall() noexcept {
    if (endpoint_ != nullptr) endpoint_->recall();
  }
  // All begins again at the first chunk of `share` that is not before `base`. Only when quiet. A connection
  // that has not been resumed yet is closed: it would be in the old view.
  void restart(Share share, uint64_t base) noexcept;

  // The reducer was removed and its connection is gone: gives its memory back. Sessions outlive many
  // reducers.
  void retire() noexcept;

  // `op` has at least one chunk here that was never put. In the order of issue.
  void add_operation(uint32_t op) noexcept;
  // Puts the next chunk if there is one and a slot is free for it. Payload bytes put; 0 when nothing can go
  // now.
  [[nodiscard]] size_t put_next() noexcept;

  // In the next contribution, that packets were lost.
  void tell_losses() noexcept { tell_losses_ = true; }

  void close(Errc reason) noexcept;
  [[nodiscard]] bool over_rdma() const noexcept {
    return endpoint_ != nullptr && endpoint_->counters().work_requests > 0;
  }
  // Contributions put whose results are not in the user's buffer yet.
  [[nodiscard]] uint64_t outstanding() const noexcept { return next_sequence_ - finished_; }
  // Bytes of results that were copied from the ring.
  [[nodiscard]] uint64_t bytes_copied() const noexcept { return bytes_copied_; }
  // Payload put once more, after a connection was resumed or the view had changed.
  [[nodiscard]] uint64_t bytes_resent() const noexcept { return bytes_resent_; }
  // Of all its connections; payload is that of contributions and results.
  [[nodiscard]] transport::EndpointCounters counters() const noexcept;
  // Frames that came on the connection that was closed last.
  [[nodiscard]] uint64_t last_frames_in() const noexcept { return last_connection_.frames_in; }

  transport::Placement on_header(transport::Endpoint& ep, const wire::FrameHeader& header,
                                 std::span<const std::byte> extensions) noexcept override;
  void on_frame(transport::Endpoint& ep, const wire::FrameHeader& header,
                std::span<const std::byte> extensions, std::span<std::byte> payload) noexcept override;
  transport::Forecast forecast(transport::Endpoint& ep, unsigned ahead) noexcept override;
  transport::Loan lend(transport::Endpoint& ep) noexcept override;
  void on_sent(transport::Endpoint& ep, transport::Cookie cookie, Status status) noexcept override;
  void on_closed(transport::Endpoint& ep, Errc reason) noexcept override;

 private:
  enum class State : uint8_t {
    kDown,      // no connection, or one on which nothing was put
    kResuming,  // RESUME is put: the reducer has not said yet what it holds
    kOpen,
  };
  // A contribution under way, by sequence mod W: what its result must say.
  struct Flight {
    uint64_t chunk = 0;  // q
    uint32_t op_id = 0;
    uint32_t fingerprint = 0;
    uint32_t length = 0;
    wire::DType dtype = wire::DType::kI8;
    wire::Op op = wire::Op::kSum;
    std::byte* place = nullptr;  // where its result was received; null: nowhere, the chunk is done
    std::byte* lent = nullptr;   // where the reducer may write its result
  };

  // link.cc
  [[nodiscard]] Flight& flight(uint64_t sequence) noexcept { return flights_[sequence % plan_.slots]; }
  [[nodiscard]] uint64_t next_chunk() const noexcept { return period_base_ + share_.turns[turn_]; }
  void advance() noexcept;
  [[nodiscard]] const ChunkRecord* record_of_next() noexcept;
  [[nodiscard]] Status put_chunk(uint64_t sequence, const ChunkRecord& r) noexcept;
  [[nodiscard]] Status put_control(wire::FrameType type) noexcept;

  // link_results.cc
  [[nodiscard]] Status check_result(const wire::FrameHeader& h) noexcept;
  // Of the view before this one, sent before the reducer knew of the change.
  [[nodiscard]] bool is_stale(const wire::FrameHeader& h) const noexcept;
  [[nodiscard]] std::byte* place_of_result(const Flight& f, bool given_back) noexcept;
  [[nodiscard]] std::byte* choose_place(const Flight& f, bool given_back) noexcept;
  [[nodiscard]] Status resumed(std::span<const std::byte> body) noexcept;
  void finish_flights() noexcept;

  Exchange& exchange_;
  const Plan plan_;
  bool retired_ = false;
  transport::Endpoint* endpoint_ = nullptr;
  State state_ = State::kDown;
  transport::EndpointCounters past_;             // of all connections that are gone
  transport::EndpointCounters last_connection_;  // of the last of them
  std::vector<std::byte> control_body_;          // of COMMIT, RESUME, VIEW_COMMIT; the transport's until sent
  uint64_t control_bytes_ = 0;                   // of all such bodies: no payload of the user's
  uint32_t controls_out_ = 0;                    // such frames not given back yet: at most one
  // slot_bytes, for results that nobody needs; then kControlBytes for what the reducer says.
  std::vector<std::byte> scratch_;

  Share share_;
  uint64_t period_base_ = 0;  // next chunk = period_base_ + turns[turn_]
  size_t turn_ = 0;
  uint64_t next_sequence_ = 0;  // of chunks put for the first time
  uint64_t next_put_ = 0;       // to be put on this connection: less than next_sequence_ after a resume
  uint64_t next_result_ = 0;    // sequence of the result expected next
  uint64_t next_sent_ = 0;      // sequence of the contribution to be given back next
  uint64_t next_lent_ = 0;      // sequence whose place is to be lent next
  uint64_t finished_ = 0;       // results in the user's buffer
  uint64_t bytes_copied_ = 0;
  uint64_t bytes_resent_ = 0;
  uint64_t crc_chunk_ = ~uint64_t{0};  // whose payload CRC is known already, because put() said to come again
  uint32_t crc_ = 0;
  bool receiving_ = false;  // a result has begun, and is not whole yet
  // Frames of this view come on this connection: only then is a forecast a safe guess.
  bool in_view_ = false;

  transport::LossWatch loss_watch_;
  bool tell_losses_ = false;

  std::vector<Flight> flights_;  // W
  std::vector<uint16_t> queue_;  // operations with chunks never put, a ring of OpTable::kCapacity
  uint32_t queue_head_ = 0, queue_tail_ = 0;
};

}  // namespace sluice::engine
