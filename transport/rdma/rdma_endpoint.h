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

class RdmaEndpoint final : public Endpoint {
 public:
  // Payload of fewer bytes is cheaper to copy into a segment than to write by itself.
  static constexpr size_t kLeastPlaced = 2 * kKiB;

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
  bool idle() const noexcept override { return outbox_.empty(); }
  void recall() noexcept override;
  bool lent() const noexcept override { return !finished_ && (lent_.any_told() || recalling_); }
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
  // For who does not poll `sleep` any more.
  void look_at_lifeline() noexcept {
    if (watches_lifeline_) lifeline_readable();
  }
  // What was sent before the close has arrived, or cannot any more.
  [[nodiscard]] bool gone() const noexcept { return finished_ && !lingers_; }
  // From now on what is done ends the sleep. False: something waits for a turn.
  [[nodiscard]] bool may_sleep() noexcept;
  [[nodiscard]] const std::shared_ptr<const Device>& device() const noexcept { return pair_->device(); }
  // A deadline runs.
  [[nodiscard]] bool timed() const noexcept {
    return !closing_ && options_.frame_deadline > 0 &&
           (reader_.within_frame() || peer_ended_ || waits_since_ != 0);
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

  // Between the reader and the handler: sees which frames go by.
  struct Intake final : Handler {
    explicit Intake(RdmaEndpoint& e) noexcept : endpoint(e) {}
    Placement on_header(Endpoint& ep, const wire::FrameHeader& header,
                        std::span<const std::byte> extensions) noexcept override;
    void on_frame(Endpoint& ep, const wire::FrameHeader& header, std::span<const std::byte> extensions,
                  std::span<std::byte> payload) noexcept override {
      endpoint.handler_.on_frame(ep, header, extensions, payload);
    }
    void on_sent(Endpoint& /*ep*/, Cookie /*cookie*/, Status /*status*/) noexcept override {}
    void on_closed(Endpoint& /*ep*/, Errc /*reason*/) noexcept override {}
    RdmaEndpoint& endpoint;
    std::optional<LentPlace> lent{};  // for the frame that began last
    bool placed = false;              // the segment under way says so
    bool unseen = false;              // that frame's payload is where only devices may touch it
  };

  unsigned flush(Nanos now) noexcept;
  [[nodiscard]] bool send_next() noexcept;
  [[nodiscard]] bool has_notes() noexcept;
  [[nodiscard]] bool waits_for_place() noexcept;
  void ask_for_places() noexcept;
  [[nodiscard]] SegmentNote take_notes(std::span<std::byte> room, size_t& used) noexcept;
  [[nodiscard]] Status take_loans(std::span<const std::byte>& bytes, const SegmentNote& note) noexcept;
  [[nodiscard]] Status take_segment(const QueuePair::Segment& segment) noexcept;
  void let_go_of_memory() noexcept;
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
  Nanos waits_since_ = 0;  // for a place that the peer would lend; 0: it doesn't
  EndpointCounters counters_;
  Outbox outbox_;
  tcp::FrameReader reader_;
  Intake intake_;
  Loans lent_;               // to the peer
  Loans borrowed_;           // from the peer
  bool recall_due_ = false;  // to be said
  bool recalling_ = false;   // the answer has not come
  bool recalled_due_ = false;
  const std::string peer_;
};

}  // namespace sluice::transport::rdma
