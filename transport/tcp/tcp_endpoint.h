#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/ids.h"
#include "transport/tcp/frame_reader.h"
#include "transport/tcp/poller.h"
#include "transport/tcp/send_queue.h"
#include "transport/tcp/socket.h"
#include "transport/transport.h"

namespace sluice::transport::tcp {

// The work that endpoints request from the next poll(). Each list holds an endpoint at most once.
struct PendingWork {
  std::vector<Handle> flush;     // endpoints with queued frames whose socket is not known to be full
  std::vector<Handle> receive;   // endpoints with more bytes to read, known without an epoll event
  std::vector<Handle> finish;    // closed endpoints with outstanding callbacks
  size_t timed = 0;              // endpoints with a running deadline
  std::span<std::byte> scratch;  // for the readers (FrameReader::kScratchBytes)
};

// TcpEndpoint is an Endpoint on a TCP socket. Owner thread of its context.
class TcpEndpoint final : public Endpoint {
 public:
  TcpEndpoint(Socket socket, Handle self, Handler& handler, const EndpointOptions& options, Poller& poller,
              PendingWork& pending);
  ~TcpEndpoint();  // no callbacks; the peer sees the effect of close(kClosed)

  Status put(const wire::FrameHeader& header, std::span<const std::byte> extensions,
             std::span<const std::byte> payload, Cookie cookie) noexcept override;
  void close(Errc reason) noexcept override;
  void shutdown() noexcept override;
  bool all_sent() const noexcept override { return queue_.empty(); }
  const EndpointCounters& counters() const noexcept override { return counters_; }
  uint64_t packet_losses() const noexcept override { return socket_.lost_packets(); }
  PathStats path_stats() const noexcept override { return socket_.path_stats(); }
  Nanos network_limited_time() const noexcept override { return socket_.network_limited_time(); }
  std::string_view peer() const noexcept override { return peer_; }

  // Called by the context. Each returns the amount of work done.
  unsigned ready(uint32_t events, Nanos now, uint64_t poll_number, size_t budget_bytes) noexcept;
  unsigned continue_receiving(Nanos now, uint64_t poll_number, size_t budget_bytes) noexcept;
  unsigned continue_sending(Nanos now) noexcept;
  // Closes the endpoint if the deadline of a started frame, or of the last frames to an ended peer, passed.
  void check_deadline(Nanos now, uint64_t poll_number) noexcept;
  // Calls on_sent() for all queued frames, then on_closed(). Destroy the endpoint afterwards.
  void finish() noexcept;

 private:
  unsigned receive(Nanos now, uint64_t poll_number, size_t budget_bytes) noexcept;
  unsigned flush(Nanos now) noexcept;
  unsigned send_queued(Nanos now) noexcept;
  unsigned complete_sent() noexcept;
  void on_peer_end(Nanos now) noexcept;
  [[nodiscard]] bool cannot_send() const noexcept { return send_error_ != Errc::kOk; }
  void on_send_error(Errc reason) noexcept;
  void on_queue_empty() noexcept;
  void request_flush() noexcept;
  void add_to_flush_list() noexcept;
  void set_wait_writable(bool wait) noexcept;
  void update_timed() noexcept;
  [[nodiscard]] bool is_overdue(Nanos now) const noexcept;

  Socket socket_;
  const Handle self_;
  Handler& handler_;
  const EndpointOptions options_;
  Poller& poller_;
  PendingWork& pending_;

  bool closing_ = false;
  bool ended_ = false;           // after shutdown() or the peer's end: put() returns kClosed
  bool end_sent_ = false;        // the end of the stream was sent to the peer
  bool peer_ended_ = false;      // at a frame boundary
  Errc send_error_ = Errc::kOk;  // why a send failed; received bytes are still processed
  bool waits_writable_ = false;  // the last send was short
  bool in_flush_ = false;
  bool in_flush_list_ = false;
  bool in_receive_list_ = false;
  bool timed_ = false;  // counted in pending_.timed
  Errc reason_ = Errc::kOk;
  uint64_t last_poll_ = 0;  // the poll in which receive() last ran; it runs once per poll
  Nanos last_received_ = 0;
  Nanos last_sent_ = 0;
  Nanos blocked_since_ = 0;  // while waits_writable_
  EndpointCounters counters_;
  SendQueue queue_;
  FrameReader reader_;
  const std::string peer_;
};

}  // namespace sluice::transport::tcp
