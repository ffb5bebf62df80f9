// One lane connection seen from the worker: which chunks it still has to send, which results it waits for,
// and the ring in which results land. PROTOCOL.md section 9: sequence s uses slot s mod W; contribution s may
// go once result s - W is here.
//
//   free -> sent -> result received, in the user's buffer -> free
//
// Result s is kept until s + W arrives: another rank may miss it until then (PROTOCOL.md section 11). While
// its operation is open the user's buffer keeps it, so a result that W more of the same operation follow is
// received there. The others are received in the ring and copied; with send == recv all of them, because half
// a result would be in the place of a contribution that may be asked for again. Either way nothing is written
// to the user's buffer before the transport has given the contribution back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gpu_client/engine/op_table.h"
#include "transport/loss_watch.h"
#include "transport/transport.h"

namespace sluice::engine {

class Exchange;

class Link final : public transport::Handler {
 public:
  // Bytes that an ABORT on a lane connection may have.
  static constexpr size_t kControlBytes = 2 * kKiB;

  struct Plan {
    uint32_t index = 0;         // among all links of the exchange
    uint32_t handle = 0;        // the session's name at this reducer
    uint32_t slots = 0;         // W
    std::byte* ring = nullptr;  // slots * slot_bytes, then kControlBytes
    // Places of the period of the placement table that name this link, ascending.
    std::vector<uint32_t> turns;
    uint32_t period = 0;  // size of that table
    bool keep_results = true;
  };

  Link(Exchange& exchange, Plan plan);
  Link(Link&&) = delete;

  void bind(transport::Endpoint& ep) noexcept { endpoint_ = &ep; }
  // Puts COMMIT, the first frame of a lane connection.
  [[nodiscard]] Status begin() noexcept;

  // `op` has at least one chunk here. In the order of issue.
  void add_operation(uint32_t op) noexcept;
  // Puts the next chunk if there is one and a slot is free for it. Payload bytes put; 0 when nothing can go
  // now.
  [[nodiscard]] size_t put_next() noexcept;

  // In the next contribution, that packets were lost.
  void tell_losses() noexcept { tell_losses_ = true; }

  void close(Errc reason) noexcept;
  // Contributions put whose results are not in the user's buffer yet.
  [[nodiscard]] uint64_t outstanding() const noexcept { return next_sequence_ - finished_; }
  // Bytes of results that were copied from the ring.
  [[nodiscard]] uint64_t bytes_copied() const noexcept { return bytes_copied_; }
  [[nodiscard]] transport::EndpointCounters counters() const noexcept;

  transport::Placement on_header(transport::Endpoint& ep, const wire::FrameHeader& header,
                                 std::span<const std::byte> extensions) noexcept override;
  void on_frame(transport::Endpoint& ep, const wire::FrameHeader& header,
                std::span<const std::byte> extensions, std::span<std::byte> payload) noexcept override;
  transport::Forecast forecast(transport::Endpoint& ep, unsigned ahead) noexcept override;
  void on_sent(transport::Endpoint& ep, transport::Cookie cookie, Status status) noexcept override;
  void on_closed(transport::Endpoint& ep, Errc reason) noexcept override;

 private:
  // A contribution under way, by sequence mod W.
  struct Flight {
    uint64_t chunk = 0;   // q
    uint64_t offset = 0;  // in the operation
    uint32_t operation = kNoOperation;
    uint32_t length = 0;
    bool followed = false;  // by W more of its operation
    bool direct = false;    // its result was received in the user's buffer
  };

  [[nodiscard]] Status check_result(const wire::FrameHeader& h) noexcept;
  [[nodiscard]] std::byte* slot(uint64_t sequence) const noexcept;
  [[nodiscard]] Flight& flight(uint64_t sequence) noexcept { return flights_[sequence % plan_.slots]; }
  [[nodiscard]] uint64_t sequence_from(uint64_t chunk) const noexcept;
  [[nodiscard]] std::byte* place_of_result(uint64_t sequence) noexcept;
  void finish_flights() noexcept;

  Exchange& exchange_;
  const Plan plan_;
  transport::Endpoint* endpoint_ = nullptr;
  transport::EndpointCounters last_counters_;  // of an endpoint that is gone
  std::vector<std::byte> commit_;              // body of COMMIT; the transport's until it is sent

  uint64_t period_base_ = 0;  // next chunk = period_base_ + turns[turn_]
  size_t turn_ = 0;
  uint64_t next_sequence_ = 0;  // of contributions
  uint64_t next_result_ = 0;    // sequence of the result expected next
  uint64_t next_sent_ = 0;      // sequence of the contribution to be given back next
  uint64_t finished_ = 0;       // results in the user's buffer
  uint64_t bytes_copied_ = 0;
  uint64_t crc_sequence_ = ~uint64_t{0};  // contribution whose payload CRC is known already
  uint32_t crc_ = 0;

  transport::LossWatch loss_watch_;
  bool tell_losses_ = false;

  std::vector<Flight> flights_;  // W
  std::vector<uint16_t> queue_;  // operations with chunks still to be put, a ring of OpTable::kCapacity
  uint32_t queue_head_ = 0, queue_tail_ = 0;
};

}  // namespace sluice::engine
