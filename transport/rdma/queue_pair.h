// A reliable connected queue pair that carries a stream of bytes in segments. Nothing here can overrun: who
// sends holds a credit for each segment, and a credit is a receive that the peer has posted. No remote
// access: neither side can read or write memory of the other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/result.h"
#include "core/units.h"
#include "transport/rdma/device.h"
#include "transport/rdma/pair_address.h"
#include "transport/tcp/socket.h"

namespace sluice::transport::rdma {

// Bytes of a segment: a frame's header and extensions must fit. Smaller ones cost more work requests per
// byte, larger ones more memory per connection.
inline constexpr uint32_t kSegmentBytes = 16 * kKiB;
// Receives posted for data, which are the peer's credits: 512 KiB under way.
inline constexpr uint32_t kDataReceives = 32;
// Receives posted for words that need no credit. The end is said once, so is a probe. Credits are returned
// without data when half of them are owed; the peer, until it has seen such a word, sends at most
// kDataReceives segments, so two of these words at most are under way.
inline constexpr uint32_t kControlReceives = 4;
inline constexpr uint32_t kReceives = kDataReceives + kControlReceives;
// Sends posted and not known to be done; each has a segment.
inline constexpr uint32_t kSends = 32;
// One send in so many says that it is done, and with it all before it. The others cost no completion.
inline constexpr uint32_t kSignalEvery = 8;
// Entries of the completion queue: all receives may be done, and all sends have failed (then each says so).
inline constexpr uint32_t kCompletions = kReceives + kSends;
// A segment of at most so many bytes is copied into the work request, where the device can do that.
inline constexpr uint32_t kInline = 220;
// The peer is given up after about kRetries + 1 times 4.096 us x 2^kAckTimeout, that is 2 s, and up to four
// times that where a device is slow. 7 retries would be no end on some devices.
inline constexpr uint8_t kAckTimeout = 16;
inline constexpr uint8_t kRetries = 6;

// One thread at a time.
class QueuePair final : public tcp::Companion {
 public:
  // Everything is registered and all receives are posted; nothing comes before join(). kUnsupported, or
  // kSystem with what failed: a memory lock limit that is too low is named.
  [[nodiscard]] static Result<std::unique_ptr<QueuePair>> make(const Path& path, uint8_t traffic_class);
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;
  ~QueuePair() override;

  [[nodiscard]] PairAddress address() const noexcept;
  [[nodiscard]] const std::shared_ptr<const Device>& device() const noexcept { return path_.device; }
  [[nodiscard]] const ibv_gid& local_gid() const noexcept { return path_.gid; }
  [[nodiscard]] const ibv_gid& peer_gid() const noexcept { return peer_gid_; }  // after join()
  // Both ends have done it before either sends.
  [[nodiscard]] Result<void> join(const PairAddress& peer);
  // Sends a full segment, since a way may carry short packets alone, and waits until it has arrived: one end
  // does it, once, before it sends anything else. kTimeout, kShutdown; kReset, kTimeout of a pair that is
  // broken.
  [[nodiscard]] Status prove(const tcp::Until& until) noexcept;

  // ---- sending ----
  // Where the next segment is written; empty without a credit, or when no send is free.
  [[nodiscard]] std::span<std::byte> room() noexcept;
  // The first `bytes` of room() go.
  [[nodiscard]] Status send(size_t bytes) noexcept;
  // Nothing more comes. kWouldBlock when no send is free.
  [[nodiscard]] Status end() noexcept;
  [[nodiscard]] bool ended() const noexcept { return ended_; }
  // After end(): all that was sent before it, and it, has arrived.
  [[nodiscard]] bool all_arrived() const noexcept { return ended_ && sends_done_ > end_number_; }
  [[nodiscard]] bool can_send() const noexcept {
    return broken_.ok() && !ended_ && credits_ > 0 && send_is_free();
  }

  // ---- receiving ----
  // Takes what the device has done. Not kOk: it is broken, kTimeout where the peer does not answer, and
  // nothing comes or goes any more.
  [[nodiscard]] Status collect() noexcept;
  [[nodiscard]] Status broken() const noexcept { return broken_; }
  // Something arrived and was not taken.
  [[nodiscard]] bool has_arrived() const noexcept { return arrived_first_ != arrived_last_; }
  // The peer ended, and all before it was taken.
  [[nodiscard]] bool at_end() const noexcept {
    return has_arrived() && arrived_[arrived_first_ % kReceives].end;
  }
  // The oldest segment; not at_end(). Valid until take().
  [[nodiscard]] std::span<const std::byte> front() noexcept;
  void take() noexcept;

  // ---- sleeping ----
  // Readable when something was done after arm().
  [[nodiscard]] int event_fd() const noexcept;
  void arm() noexcept;    // collect() after it: what was done before announces nothing
  void event() noexcept;  // event_fd() was readable

 private:
  struct Arrived {
    uint32_t segment = 0;
    uint32_t bytes = 0;
    bool end = false;
  };
  QueuePair(Path path, uint8_t traffic_class);
  [[nodiscard]] Result<void> build();
  [[nodiscard]] std::byte* receive_segment(uint32_t i) const noexcept;
  [[nodiscard]] std::byte* send_segment(uint64_t i) const noexcept;
  [[nodiscard]] bool send_is_free() const noexcept { return sends_posted_ - sends_done_ < kSends; }
  [[nodiscard]] Status post_receive(uint32_t segment) noexcept;
  [[nodiscard]] Status post_send(size_t bytes, uint32_t word, bool signaled) noexcept;
  [[nodiscard]] Status received(const ibv_wc& done) noexcept;
  [[nodiscard]] Status return_credits() noexcept;

  const Path path_;
  const uint8_t traffic_class_;
  const Verbs& calls_;
  const uint32_t first_packet_;
  PairEvents events_;
  Tally bytes_in_;
  Tally bytes_out_;
  std::byte* memory_ = nullptr;
  ibv_mr* region_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* completion_queue_ = nullptr;
  ibv_qp* pair_ = nullptr;
  uint32_t inline_bytes_ = 0;

  ibv_gid peer_gid_{};
  uint64_t sends_posted_ = 0;
  uint64_t sends_done_ = 0;
  uint32_t credits_ = 0;  // segments that the peer has a receive for
  uint32_t peer_segments_ = 0;
  uint32_t peer_segment_bytes_ = 0;
  uint32_t owed_ = 0;  // credits to be returned
  bool ended_ = false;
  uint64_t end_number_ = 0;  // of the send that says so
  bool armed_ = false;
  bool was_probed_ = false;
  Status broken_;
  std::array<Arrived, kReceives> arrived_;
  uint64_t arrived_first_ = 0;
  uint64_t arrived_last_ = 0;
};

}  // namespace sluice::transport::rdma
