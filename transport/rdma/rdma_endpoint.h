#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/ids.h"
#include "transport/rdma/outbox.h"
#include "transport/rdma/queue_pair.h"
#include "transport/tcp/frame_reader.h"
#include "transport/tcp/tcp_context.h"
#include "transport/transport.h"

namespace sluice::transport::rdma {

// RdmaEndpoint sends and receives frames over a queue pair. Payload goes in segments, or is written directly
// to buffers that the receiver has advertised. The TCP connection over which the ends met stays open: its end
// shows at once that the peer has closed or was killed.
class RdmaEndpoint final : public Endpoint {
 public:
  // A shorter payload is cheaper to copy into a segment than to write separately.
  static constexpr size_t kMinPlacedBytes = 2 * kKiB;

  // `scratch` as for FrameReader. `context` must outlive the endpoint.
  RdmaEndpoint(tcp::Socket socket, std::unique_ptr<QueuePair> pair, Handler& handler,
               const EndpointOptions& options, tcp::TcpContext& context, std::span<std::byte> scratch);
  // Call close_without_callbacks(), and then poll() until has_drained(), before the destructor.
  ~RdmaEndpoint();
  // Adds the descriptors of the queue pair and of the TCP connection to the context.
  [[nodiscard]] Result<void> watch();

  Status put(const wire::FrameHeader& header, std::span<const std::byte> extensions,
             std::span<const std::byte> payload, Cookie cookie) noexcept override;
  void close(Errc reason) noexcept override;
  void shutdown() noexcept override { puts_refused_ = true; }
  bool all_sent() const noexcept override { return outbox_.empty(); }
  void recall() noexcept override;
  bool has_advertised_buffers() const noexcept override {
    return !finished_ && (advertised_.has_sent() || awaiting_recalled_);
  }
  const EndpointCounters& counters() const noexcept override { return counters_; }
  std::string_view peer() const noexcept override { return peer_; }

  // ---- for the context ----
  // Makes progress once. Returns the amount of work done.
  unsigned poll(Nanos now, size_t budget_bytes) noexcept;
  // True when the endpoint has closed and finish() is due.
  [[nodiscard]] bool is_closing() const noexcept { return closing_ && !finished_; }
  // Calls on_sent() for the remaining puts, then on_closed(). poll() must follow until has_drained().
  void finish() noexcept;
  // As close(kClosed) and finish(), without callbacks. For the destructor of the context.
  void close_without_callbacks() noexcept;
  // Checks whether the peer has closed the TCP connection. For a caller that no longer polls the context.
  void check_socket() noexcept {
    if (watches_socket_) on_socket_readable();
  }
  // True when the endpoint is finished, and its sent bytes are delivered or cannot be delivered any more.
  [[nodiscard]] bool has_drained() const noexcept { return finished_ && !draining_; }
  // Arms the event of the queue pair. False: there is work to do before the context may sleep.
  [[nodiscard]] bool may_sleep() noexcept;
  [[nodiscard]] const std::shared_ptr<const Device>& device() const noexcept { return pair_->device(); }
  [[nodiscard]] bool has_deadline() const noexcept {
    return !closing_ && options_.frame_deadline > 0 &&
           (reader_.within_frame() || peer_ended_ || waiting_since_ != 0);
  }
  [[nodiscard]] Nanos frame_deadline() const noexcept { return options_.frame_deadline; }

 private:
  struct SocketWatcher final : tcp::Watcher {
    explicit SocketWatcher(RdmaEndpoint& e) noexcept : endpoint(e) {}
    void on_readable() noexcept override { endpoint.on_socket_readable(); }
    RdmaEndpoint& endpoint;
  };
  struct PairWatcher final : tcp::Watcher {
    explicit PairWatcher(QueuePair& p) noexcept : pair(p) {}
    void on_readable() noexcept override { pair.acknowledge_event(); }
    QueuePair& pair;
  };

  // ReceiveHandler stands between the reader and the handler: it matches frames with advertised buffers.
  struct ReceiveHandler final : Handler {
    explicit ReceiveHandler(RdmaEndpoint& e) noexcept : endpoint(e) {}
    ReceiveTarget on_header(Endpoint& ep, const wire::FrameHeader& header,
                            std::span<const std::byte> extensions) noexcept override;
    void on_frame(Endpoint& ep, const wire::FrameHeader& header, std::span<const std::byte> extensions,
                  std::span<std::byte> payload) noexcept override {
      endpoint.handler_.on_frame(ep, header, extensions, payload);
    }
    void on_sent(Endpoint& /*ep*/, Cookie /*cookie*/, Status /*status*/) noexcept override {}
    void on_closed(Endpoint& /*ep*/, Errc /*reason*/) noexcept override {}
    RdmaEndpoint& endpoint;
    std::optional<AdvertisedBuffer> buffer{};  // of the last started frame
    bool placed = false;                       // the current segment announces a placed payload
    bool device_only = false;                  // the CPU must not access the payload of that frame
  };

  unsigned flush(Nanos now) noexcept;
  [[nodiscard]] bool send_next() noexcept;
  [[nodiscard]] bool has_segment_info() noexcept;
  [[nodiscard]] bool waits_for_buffer() noexcept;
  void advertise_buffers() noexcept;
  [[nodiscard]] SegmentInfo write_segment_info(std::span<std::byte> segment, size_t& used) noexcept;
  [[nodiscard]] Status read_advertised_buffers(std::span<const std::byte>& bytes,
                                               const SegmentInfo& info) noexcept;
  [[nodiscard]] Status handle_segment(const QueuePair::Segment& segment) noexcept;
  void release_memory() noexcept;
  unsigned complete_puts() noexcept;
  unsigned receive(Nanos now, size_t budget_bytes) noexcept;
  void handle_peer_end(Nanos now) noexcept;
  void check_deadline(Nanos now) noexcept;
  void drain() noexcept;
  void on_socket_readable() noexcept;
  void unwatch_socket() noexcept;
  [[nodiscard]] bool socket_ended() const noexcept { return socket_end_ != Errc::kOk; }

  tcp::Socket socket_;
  std::unique_ptr<QueuePair> pair_;
  Handler& handler_;
  const EndpointOptions options_;
  tcp::TcpContext& context_;
  SocketWatcher socket_watcher_;
  PairWatcher pair_watcher_;
  Handle socket_handle_;
  Handle pair_handle_;
  bool watches_socket_ = false;
  bool watches_pair_ = false;

  bool closing_ = false;
  bool finished_ = false;
  bool draining_ = false;
  bool puts_refused_ = false;  // after shutdown(), or after the peer's end
  bool peer_ended_ = false;    // at a frame boundary
  Errc socket_end_ = Errc::kOk;
  Errc reason_ = Errc::kOk;
  Nanos last_received_ = 0;
  Nanos last_sent_ = 0;
  Nanos waiting_since_ = 0;  // for a buffer that the peer must advertise; 0: not waiting
  EndpointCounters counters_;
  Outbox outbox_;
  tcp::FrameReader reader_;
  ReceiveHandler receive_handler_;
  RemoteBuffers advertised_;    // by this end
  RemoteBuffers peer_buffers_;  // advertised by the peer
  bool must_send_recall_ = false;
  bool awaiting_recalled_ = false;
  bool must_send_recalled_ = false;
  const std::string peer_;
};

}  // namespace sluice::transport::rdma
