#pragma once

#include <cstdint>
#include <string>

#include "core/ids.h"
#include "transport/rdma/queue_pair.h"
#include "transport/tcp/frame_reader.h"
#include "transport/tcp/send_queue.h"
#include "transport/tcp/tcp_context.h"
#include "transport/transport.h"

namespace sluice::transport::rdma {

class RdmaEndpoint final : public Endpoint {
 public:
  // A TCP connection over which the ends of `pair` found each other stays: it is how a peer that ends, or is
  // killed, is noticed at once. `scratch` as for FrameReader; `sleep` outlives it.
  RdmaEndpoint(tcp::Socket lifeline, std::unique_ptr<QueuePair> pair, Handler& handler,
               const EndpointOptions& options, tcp::TcpContext& sleep, std::span<std::byte> scratch);
  ~RdmaEndpoint();  // leave() comes before it, and turns until gone()
  [[nodiscard]] Result<void> watch();

  Status put(const wire::FrameHeader& header, std::span<const std::byte> extensions,
             std::span<const std::byte> payload, Cookie cookie) noexcept override;
  void close(Errc reason) noexcept override;
  void shutdown() noexcept override { ended_ = true; }
  bool idle() const noexcept override { return queue_.empty(); }
  const EndpointCounters& counters() const noexcept override { return counters_; }
  std::string_view peer() const noexcept override { return peer_; }

  // The context's part. Returns how much was done.
  unsigned turn(Nanos now, size_t budget_bytes) noexcept;
  // Closed, and finish() has not been called.
  [[nodiscard]] bool closing() const noexcept { return closing_ && !finished_; }
  // Gives everything back and calls on_closed(). Turns go on until gone().
  void finish() noexcept;
  // As close(kClosed) and finish(), without callbacks: for a context that ends.
  void leave() noexcept;
  // What was sent before the close has arrived, or cannot any more.
  [[nodiscard]] bool gone() const noexcept { return finished_ && !lingers_; }
  // From now on what is done ends the sleep. False: something waits for a turn.
  [[nodiscard]] bool may_sleep() noexcept;
  [[nodiscard]] const std::shared_ptr<const Device>& device() const noexcept { return pair_->device(); }
  // A deadline runs.
  [[nodiscard]] bool timed() const noexcept {
    return !closing_ && options_.frame_deadline > 0 && (reader_.within_frame() || peer_ended_);
  }
  [[nodiscard]] Nanos frame_deadline() const noexcept { return options_.frame_deadline; }

 private:
  struct LifelineWatch final : tcp::Watcher {
    explicit LifelineWatch(RdmaEndpoint& e) noexcept : endpoint(e) {}
    void readable() noexcept override { endpoint.lifeline_readable(); }
    RdmaEndpoint& endpoint;
  };
  struct PairWatch final : tcp::Watcher {
    explicit PairWatch(QueuePair& p) noexcept : pair(p) {}
    void readable() noexcept override { pair.event(); }
    QueuePair& pair;
  };

  unsigned flush(Nanos now) noexcept;
  unsigned give_back_sent() noexcept;
  unsigned receive(Nanos now, size_t budget_bytes) noexcept;
  void end_of_stream(Nanos now) noexcept;
  void check_deadline(Nanos now) noexcept;
  void linger() noexcept;
  void lifeline_readable() noexcept;
  void unwatch_lifeline() noexcept;
  [[nodiscard]] bool lifeline_is_over() const noexcept { return lifeline_over_ != Errc::kOk; }

  tcp::Socket lifeline_;
  std::unique_ptr<QueuePair> pair_;
  Handler& handler_;
  const EndpointOptions options_;
  tcp::TcpContext& sleep_;
  LifelineWatch lifeline_watch_;
  PairWatch pair_watch_;
  Handle lifeline_handle_;
  Handle pair_handle_;
  bool watches_lifeline_ = false;
  bool watches_pair_ = false;

  bool closing_ = false;
  bool finished_ = false;
  bool lingers_ = false;
  bool ended_ = false;       // shutdown(), or the peer ended: no put()
  bool peer_ended_ = false;  // at a frame boundary
  Errc lifeline_over_ = Errc::kOk;
  Errc reason_ = Errc::kOk;
  Nanos last_received_ = 0;
  Nanos last_sent_ = 0;
  EndpointCounters counters_;
  tcp::SendQueue queue_;
  tcp::FrameReader reader_;
  const std::string peer_;
};

}  // namespace sluice::transport::rdma
