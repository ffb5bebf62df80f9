// Class LaneConnection drives one lane connection of the worker: it puts the contributions assigned to the
// connection and receives their results. Sequence s uses slot s mod W; contribution s may be put once result
// s - W is here (protocol.md section 9).
//
//   free -> sent -> result received -> free
//
// The buffer of a result depends on the chunk (chunk_ring.h):
// - The user's buffer, when D more chunks of the operation follow, so that the buffer keeps the result.
// - Otherwise the ring, from which the result is copied. With send == recv always the ring: a partly received
//   result would overwrite a contribution that may have to be sent again.
// - A chunk whose result has no payload for this rank has a buffer in the ring, which keeps the contribution.
// - Always the user's buffer when results are not kept. Device memory requires that.
// A reducer that writes with RDMA gets this buffer advertised as soon as the contribution is put; it has the
// result only after it has received the whole contribution.
//
// A broken connection can be replaced (protocol.md section 11). Contributions that the reducer lacks are then
// put again from their original buffers. After a view change sequences start at 0 again.
//
// All calls come from the thread of the progress loop.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/arena.h"
#include "gpu_client/engine/data_path/chunk_ring.h"
#include "gpu_client/engine/data_path/op_table.h"
#include "transport/loss_detector.h"
#include "transport/path_monitor.h"
#include "transport/transport.h"

namespace sluice::engine {

class ChunkScheduler;

class LaneConnection final : public transport::Handler {
 public:
  // The largest payload of ABORT and RESUME_ACK on a lane connection.
  static constexpr size_t kControlBytes = 2 * kKiB;

  struct Options {
    uint32_t index = 0;                              // among the scheduler's lane connections
    uint32_t handle = 0;                             // the session's handle at this reducer
    uint32_t slots = 0;                              // W
    bool sparse = false;                             // payloads may be sparse, in both directions
    std::shared_ptr<transport::PathMonitor> path{};  // may be null
    bool keep_results = true;
  };
  // The chunks assigned to this connection: the positions in the placement table that hold its index,
  // ascending.
  struct Share {
    std::vector<uint32_t> turns;
    uint32_t period = 0;  // size of the table
  };

  // The connection has no chunks until restart().
  LaneConnection(ChunkScheduler& scheduler, const Options& options);
  LaneConnection(LaneConnection&&) = delete;

  // Attaches a new endpoint, on which nothing was put. begin() or resume() must follow.
  void bind(transport::Endpoint& ep) noexcept;
  [[nodiscard]] bool is_bound() const noexcept { return endpoint_ != nullptr; }
  [[nodiscard]] uint32_t slots() const noexcept { return options_.slots; }
  // Puts COMMIT, the first frame on a lane connection of a new session.
  [[nodiscard]] Status begin() noexcept;
  // Puts RESUME, the first frame on any later connection.
  [[nodiscard]] Status resume() noexcept;
  // True when the transport uses no buffer of the old view: no contribution, and no buffer of a result that
  // is being received. Otherwise another connection could complete the chunk and return the buffer to the
  // caller while the transport still writes to it.
  [[nodiscard]] bool is_quiescent() const noexcept;
  // Advertises no buffer until restart(), and asks the reducer to return those that it has.
  void recall() noexcept {
    if (endpoint_ != nullptr) endpoint_->recall();
  }
  // Restarts at the first chunk of `share` that is not below `base`, with sequence 0. Requires
  // is_quiescent(). Closes a connection that waits for RESUME_ACK, because it would resume in the old view.
  void restart(Share share, uint64_t base) noexcept;

  // Frees the memory of a connection whose reducer was removed. A session may outlive many reducers.
  void retire() noexcept;

  // Adds an operation with at least one chunk for this connection that was never put. In order of issue.
  void add_operation(uint32_t op) noexcept;
  // Puts the next chunk if there is one and its slot is free. Returns the payload bytes put; 0 when nothing
  // can be put now.
  [[nodiscard]] size_t put_next() noexcept;

  // Sets the flag for packet losses in the next contribution.
  void flag_packet_loss() noexcept { flag_packet_loss_ = true; }

  void sample_path(Nanos now) noexcept {
    if (endpoint_ != nullptr && options_.path != nullptr) (void)options_.path->sample(*endpoint_, now);
  }

  void close(Errc reason) noexcept;
  [[nodiscard]] bool over_rdma() const noexcept {
    return endpoint_ != nullptr && endpoint_->counters().work_requests > 0;
  }
  // Of the present endpoint; 0 without one.
  [[nodiscard]] Nanos network_limited_time() const noexcept {
    return endpoint_ != nullptr ? endpoint_->network_limited_time() : 0;
  }
  // Contributions put whose results are not in the user's buffer yet.
  [[nodiscard]] uint64_t outstanding() const noexcept { return next_sequence_ - finished_; }
  // Bytes of results that were copied from the ring.
  [[nodiscard]] uint64_t bytes_copied() const noexcept { return bytes_copied_; }
  // Payload bytes that were put again after a resume or a view change.
  [[nodiscard]] uint64_t bytes_resent() const noexcept { return bytes_resent_; }
  // The sum over all endpoints of this connection. Payload counts contributions and results only.
  [[nodiscard]] transport::EndpointCounters counters() const noexcept;
  // Frames received on the endpoint that was closed last.
  [[nodiscard]] uint64_t last_frames_in() const noexcept { return last_connection_.frames_in; }

  transport::ReceiveTarget on_header(transport::Endpoint& ep, const wire::FrameHeader& header,
                                     std::span<const std::byte> extensions) noexcept override;
  void on_frame(transport::Endpoint& ep, const wire::FrameHeader& header,
                std::span<const std::byte> extensions, std::span<std::byte> payload) noexcept override;
  transport::ExpectedFrame expected_frame(transport::Endpoint& ep, unsigned ahead) noexcept override;
  transport::RemoteBuffer advertise(transport::Endpoint& ep) noexcept override;
  void on_sent(transport::Endpoint& ep, transport::Cookie cookie, Status status) noexcept override;
  void on_closed(transport::Endpoint& ep, Errc reason) noexcept override;

 private:
  enum class State : uint8_t {
    kDown,      // no endpoint, or one on which nothing was put
    kResuming,  // RESUME was put; the reducer has not reported yet which contributions it holds
    kOpen,
  };
  // A contribution without a result, stored at sequence mod W: the values that its result must carry.
  struct InflightChunk {
    uint64_t chunk = 0;  // q
    uint32_t op_id = 0;
    uint32_t fingerprint = 0;
    uint32_t length = 0;  // 0: this rank receives no payload
    wire::DType dtype = wire::DType::kI8;
    wire::Op op = wire::Op::kSum;
    wire::Kind kind = wire::Kind::kAllreduce;
    bool accepts_sparse = false;      // the result may be sparse
    std::byte* buffer = nullptr;      // holds the received result; null: discarded, the chunk was done before
    std::byte* advertised = nullptr;  // where the reducer may write the result
  };

  // lane_connection.cc
  // The slots of this connection or the scheduler's limit allow no further chunk now.
  [[nodiscard]] bool is_limited() const noexcept;
  void note_limited() noexcept;
  [[nodiscard]] InflightChunk& inflight(uint64_t sequence) noexcept {
    return inflight_[sequence % options_.slots];
  }
  [[nodiscard]] uint64_t next_chunk() const noexcept { return period_base_ + share_.turns[turn_]; }
  void advance() noexcept;
  [[nodiscard]] const ChunkRecord* next_record() noexcept;
  [[nodiscard]] Status put_chunk(uint64_t sequence, const ChunkRecord& r) noexcept;
  [[nodiscard]] bool accepts_sparse(const ChunkRecord& r) const noexcept;
  void prepare_payload(uint64_t sequence, const ChunkRecord& r, std::span<const std::byte> payload) noexcept;
  [[nodiscard]] Status put_control(wire::FrameType type) noexcept;

  // lane_results.cc
  [[nodiscard]] Status check_result(const wire::FrameHeader& h,
                                    std::span<const std::byte> extensions) noexcept;
  // A result of an earlier view, sent before the reducer received VIEW_COMMIT.
  [[nodiscard]] bool is_stale(const wire::FrameHeader& h) const noexcept;
  [[nodiscard]] std::byte* result_buffer(const InflightChunk& f, bool contribution_sent) noexcept;
  [[nodiscard]] std::byte* choose_result_buffer(const InflightChunk& f, bool contribution_sent) noexcept;
  void note_finding(const wire::FrameHeader& header, std::span<const std::byte> extensions) noexcept;
  [[nodiscard]] Status handle_resume_ack(std::span<const std::byte> body) noexcept;
  void finish_chunks() noexcept;
  void keep(ChunkRecord& r, std::byte* buffer) noexcept;

  ChunkScheduler& scheduler_;
  const Options options_;
  bool retired_ = false;
  transport::Endpoint* endpoint_ = nullptr;
  State state_ = State::kDown;
  transport::EndpointCounters closed_counters_;  // sum over all closed endpoints
  transport::EndpointCounters last_connection_;  // of the endpoint closed last
  std::vector<std::byte> control_body_;          // of COMMIT, RESUME, VIEW_COMMIT; the transport's until sent
  uint64_t control_bytes_ = 0;                   // of all such bodies; not counted as payload
  uint32_t controls_in_flight_ = 0;              // such frames in the transport: at most one
  // slot_bytes for results that are discarded, then kControlBytes for control frames of the reducer.
  std::vector<std::byte> scratch_;

  Share share_;
  uint64_t period_base_ = 0;  // next chunk = period_base_ + turns[turn_]
  size_t turn_ = 0;
  uint64_t next_sequence_ = 0;    // of the next chunk that is put for the first time
  uint64_t next_put_ = 0;         // next to put on this endpoint; below next_sequence_ after a resume
  uint64_t next_result_ = 0;      // expected next
  uint64_t next_sent_ = 0;        // next contribution for which on_sent() is due
  uint64_t next_advertised_ = 0;  // next whose buffer is to be advertised
  uint64_t finished_ = 0;         // results in the user's buffer
  uint64_t bytes_copied_ = 0;
  uint64_t bytes_resent_ = 0;
  // The payload of a chunk as it travels, kept while put() returns kWouldBlock.
  struct Prepared {
    uint64_t chunk = ~uint64_t{0};
    std::span<const std::byte> payload;
    bool sparse = false;
    uint32_t crc = 0;
  };
  Prepared prepared_;
  // How many chunks travel in the bytes of kDense dense chunks, by the last contribution and the last result.
  static constexpr uint32_t kDense = 16;
  [[nodiscard]] uint32_t chunks_for_dense() const noexcept {
    return std::min(sent_for_dense_, received_for_dense_);
  }
  uint32_t sent_for_dense_ = kDense, received_for_dense_ = kDense;
  Arena sparse_payloads_;   // W buffers, by sequence: contributions whose zero blocks were removed
  bool receiving_ = false;  // a result has been received in part
  // The endpoint has received a frame of this view. Before that a prediction of the next frame is unsafe.
  bool view_confirmed_ = false;

  transport::LossDetector loss_detector_;
  bool flag_packet_loss_ = false;

  std::vector<InflightChunk> inflight_;  // W
  std::vector<uint16_t> queue_;  // operations with chunks never put: a ring of OpTable::kCapacity entries
  uint32_t queue_head_ = 0, queue_tail_ = 0;
};

}  // namespace sluice::engine
