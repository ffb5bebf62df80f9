#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/ids.h"
#include "transport/tcp/frame_reader.h"
#include "transport/tcp/path.h"
#include "transport/tcp/poller.h"
#include "transport/tcp/send_queue.h"
#include "transport/tcp/socket.h"
#include "transport/transport.h"

namespace sluice::transport::tcp {

// What endpoints want from the next turns of their context. An endpoint stands in a list at most once.
struct Agenda {
  std::vector<Handle> flush;     // frames queued, socket not known to be full
  std::vector<Handle> receive;   // the budget ended while bytes were still coming: no need to ask epoll
  std::vector<Handle> finish;    // closed, callbacks outstanding
  size_t timed = 0;              // endpoints with a deadline running
  std::span<std::byte> scratch;  // of the readers (FrameReader::kScratchBytes)
};

class TcpEndpoint final : public Endpoint {
 public:
  TcpEndpoint(Socket socket, Handle self, Handler& handler, const EndpointOptions& options, Poller& poller,
              Agenda& agenda);
  ~TcpEndpoint();  // without callbacks; the peer is told as by close(kClosed)

  Status put(const wire::FrameHeader& header, std::span<const std::byte> extensions,
             std::span<const std::byte> payload, Cookie cookie) noexcept override;
  void close(Errc reason) noexcept override;
  void shutdown() noexcept override;
  bool idle() const noexcept override { return queue_.empty(); }
  const EndpointCounters& counters() const noexcept override { return counters_; }
  uint64_t losses() const noexcept override { return lost_packets(socket_.fd()); }
  std::string_view peer() const noexcept override { return peer_; }

  // The context's part. Each returns how much was done.
  unsigned ready(uint32_t events, Nanos now, uint64_t turn, size_t budget_bytes) noexcept;
  unsigned continue_receiving(Nanos now, uint64_t turn, size_t budget_bytes) noexcept;
  unsigned continue_sending(Nanos now) noexcept;
  // Closes when the deadline of a started frame, or of the last frames to a peer that has ended, is over.
  void check_deadline(Nanos now, uint64_t turn) noexcept;
  // Gives everything back and calls on_closed(). Destroy after it.
  void finish() noexcept;

 private:
  unsigned receive(Nanos now, uint64_t turn, size_t budget_bytes) noexcept;
  unsigned flush(Nanos now) noexcept;
  unsigned send_queued(Nanos now) noexcept;
  unsigned give_back_sent() noexcept;
  void end_of_stream(Nanos now) noexcept;
  [[nodiscard]] bool cannot_send() const noexcept { return send_error_ != Errc::kOk; }
  void send_failed(Errc why) noexcept;
  void sent_everything() noexcept;
  void want_flush() noexcept;
  void list_for_flush() noexcept;
  void want_writable(bool wanted) noexcept;
  void update_timed() noexcept;
  [[nodiscard]] bool overdue(Nanos now) const noexcept;

  Socket socket_;
  const Handle self_;
  Handler& handler_;
  const EndpointOptions options_;
  Poller& poller_;
  Agenda& agenda_;

  bool closing_ = false;
  bool ended_ = false;           // shutdown(), or the peer ended: no put()
  bool told_peer_ = false;       // that nothing more comes
  bool peer_ended_ = false;      // at a frame boundary
  Errc send_error_ = Errc::kOk;  // why a send failed; what has arrived is still taken in
  bool waits_writable_ = false;  // the last send was short
  bool in_flush_ = false;
  bool in_flush_list_ = false;
  bool in_receive_list_ = false;
  bool timed_ = false;  // counted in agenda_.timed
  Errc reason_ = Errc::kOk;
  uint64_t last_turn_ = 0;  // in which receive() ran: once a turn is enough
  Nanos last_received_ = 0;
  Nanos last_sent_ = 0;
  Nanos blocked_since_ = 0;  // while waits_writable_
  EndpointCounters counters_;
  SendQueue queue_;
  FrameReader reader_;
  const std::string peer_;
};

}  // namespace sluice::transport::tcp
