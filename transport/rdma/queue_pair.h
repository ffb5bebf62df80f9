// A reliable connected queue pair that carries a stream of bytes in segments, and payload beside it where the
// peer has lent a place. Nothing here can overrun: who sends holds a credit for each segment, and a credit is
// a receive that the peer has posted. A peer can write to memory that is registered for that, and read none.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/result.h"
#include "core/units.h"
#include "transport/rdma/device.h"
#include "transport/rdma/loans.h"
#include "transport/rdma/pair_address.h"
#include "transport/rdma/registered_memory.h"
#include "transport/tcp/socket.h"

namespace sluice::transport::rdma {

// Bytes of a segment: a frame's header and extensions must fit. Smaller ones cost more work requests per
// byte, larger ones more memory per connection.
inline constexpr uint32_t kSegmentBytes = 16 * kKiB;
// Receives posted for data, which are the peer's credits: so many segments, or chunks beside them, under way.
inline constexpr uint32_t kDataReceives = 32;
// Receives posted for words that need no credit. The end is said once, so is a probe. Credits are returned
// without data when half of them are owed; the peer, until it has seen such a word, sends at most
// kDataReceives segments, so two of these words at most are under way.
inline constexpr uint32_t kControlReceives = 4;
inline constexpr uint32_t kReceives = kDataReceives + kControlReceives;
// Sends posted and not known to be done; each has a segment, and a write in front of it at most.
inline constexpr uint32_t kSends = 32;
inline constexpr uint32_t kSendRequests = 2 * kSends;
// One send in so many says that it is done, and with it all before it. The others cost no completion, but for
// those behind a write: somebody waits for its payload.
inline constexpr uint32_t kSignalEvery = 8;
// Entries of the completion queue: all receives may be done, and all sends have failed (then each says so).
inline constexpr uint32_t kCompletions = kReceives + kSendRequests;
// A segment of at most so many bytes is copied into the work request, where the device can do that.
inline constexpr uint32_t kInline = 220;
// The peer is given up after about kRetries + 1 times 4.096 us x 2^kAckTimeout, that is 2 s, and up to four
// times that where a device is slow. 7 retries would be no end on some devices.
inline constexpr uint8_t kAckTimeout = 16;
inline constexpr uint8_t kRetries = 6;

// What the immediate word of a segment says of it, beside the credits that it returns.
struct SegmentNote {
  bool placed = false;    // the head of one frame, whose payload was written to the place lent for it
  bool recall = false;    // what was lent is to be given back
  bool recalled = false;  // it has been: nothing more is written there
  uint8_t loans = 0;      // so many lent places stand in front (loans.h)
};
inline constexpr uint8_t kMostLoansTold = 8;

// One thread at a time.
class QueuePair final : public tcp::Companion {
 public:
  // Everything is registered and all receives are posted; nothing comes before join(). kUnsupported, or
  // kSystem with what failed: a memory lock limit that is too low is named.
  // `lends`: registered in `domain` for this pair alone; may be empty. `owner` keeps them meanwhile.
  [[nodiscard]] static Result<std::unique_ptr<QueuePair>> make(const Path& path, uint8_t traffic_class,
                                                               std::shared_ptr<Domain> domain,
                                                               std::span<std::byte> lends = {},
                                                               std::shared_ptr<const void> owner = {});
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
  // The same without waiting: kWouldBlock until it has arrived.
  [[nodiscard]] Status start_proof() noexcept;
  [[nodiscard]] Status proof_state() noexcept;

  // ---- sending ----
  // Where the next segment is written; empty without a credit, or when no send is free.
  [[nodiscard]] std::span<std::byte> room() noexcept;
  // The first `bytes` of room() go.
  [[nodiscard]] Status send(size_t bytes, const SegmentNote& note = {}) noexcept;
  // `payload` goes to the place that the peer has lent, and then the first `bytes` of room(), which tell of
  // it; one doorbell. It must lie in the region of `local_key` and stay until sends_done() is
  // sends_posted().
  [[nodiscard]] Status send_placed(std::span<const std::byte> payload, uint32_t local_key,
                                   const LentPlace& place, size_t bytes, SegmentNote note) noexcept;
  [[nodiscard]] uint64_t sends_posted() const noexcept { return sends_posted_; }
  [[nodiscard]] uint64_t sends_done() const noexcept { return sends_done_; }
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
  struct Segment {
    std::span<const std::byte> bytes;
    SegmentNote note;
  };
  // Payload that the peer has written beside the segments: for the device's counts.
  void count_landed(size_t bytes) noexcept { bytes_in_.add(bytes); }
  // The oldest segment; not at_end(). Valid until take().
  [[nodiscard]] Segment front() noexcept;
  void take() noexcept;

  // ---- memory ----
  // The region with all of these bytes, this pair's own or its domain's; null: none.
  [[nodiscard]] const Region* region_of(const std::byte* at, size_t bytes) noexcept;
  // The same of memory that only devices may touch.
  [[nodiscard]] const Region* device_region_of(const std::byte* at, size_t bytes) noexcept {
    return regions_.find_device(at, bytes);
  }
  // What this pair alone lends, or nothing.
  [[nodiscard]] bool lends_its_own() const noexcept { return lent_region_ != nullptr; }
  // From here on the peer can't write to that any more; one that tries breaks the pair.
  void withdraw() noexcept;
  // From here on the device neither reads nor writes memory for this pair, and it is broken.
  void cut() noexcept;

  struct Counts {
    uint64_t work_requests = 0;
    uint64_t doorbells = 0;
    uint64_t completions = 0;
  };
  [[nodiscard]] const Counts& counts() const noexcept { return counts_; }

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
    SegmentNote note{};
  };
  QueuePair(Path path, uint8_t traffic_class, std::shared_ptr<Domain> domain, std::span<std::byte> lends,
            std::shared_ptr<const void> owner);
  [[nodiscard]] Result<void> build();
  void unmake() noexcept;
  [[nodiscard]] std::byte* receive_segment(uint32_t i) const noexcept;
  [[nodiscard]] std::byte* send_segment(uint64_t i) const noexcept;
  [[nodiscard]] bool send_is_free() const noexcept { return sends_posted_ - sends_done_ < kSends; }
  [[nodiscard]] Status post_receive(uint32_t segment) noexcept;
  // With a write in front of it, or null.
  [[nodiscard]] Status post_send(size_t bytes, uint32_t word, bool signaled,
                                 ibv_send_wr* write = nullptr) noexcept;
  [[nodiscard]] Status received(const ibv_wc& done) noexcept;
  [[nodiscard]] Status return_credits() noexcept;

  const Path path_;
  const uint8_t traffic_class_;
  const Verbs& calls_;
  const std::shared_ptr<Domain> domain_;
  RegionLookup regions_;
  const std::span<std::byte> lends_;
  std::shared_ptr<const void> owner_;
  const uint32_t first_packet_;
  PairEvents events_;
  Tally bytes_in_;
  Tally bytes_out_;
  std::byte* memory_ = nullptr;
  ibv_mr* region_ = nullptr;
  ibv_mr* lent_region_ = nullptr;
  Region lent_keys_;
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
  Counts counts_;
  std::array<Arrived, kReceives> arrived_;
  uint64_t arrived_first_ = 0;
  uint64_t arrived_last_ = 0;
};

}  // namespace sluice::transport::rdma
