#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/result.h"
#include "transport/rdma/local_path.h"
#include "transport/rdma/pair_address.h"
#include "transport/rdma/queue_pair_resources.h"
#include "transport/rdma/registered_memory.h"
#include "transport/rdma/remote_buffers.h"
#include "transport/rdma/segment_info.h"
#include "transport/tcp/blocking_io.h"
#include "transport/tcp/socket.h"

namespace sluice::transport::rdma {

// QueuePair sends and receives a byte stream in segments over a reliable connected (RC) queue pair. Payload
// may also be written directly to buffers that the peer has advertised. Each segment needs a credit, which
// stands for a receive that the peer has posted, so nothing can overrun. The peer can write only to memory
// that is registered for remote writes, and can read none. One thread at a time.
class QueuePair final : public tcp::AttachedChannel {
 public:
  // Creates the queue pair with its memory and posts all receives. Nothing arrives before connect().
  // The own buffers of `memory` are registered in `domain` for this queue pair alone. kUnsupported, or
  // kSystem with the failed call (for locked memory, with the limit).
  [[nodiscard]] static Result<std::unique_ptr<QueuePair>> make(const LocalPath& path, uint8_t traffic_class,
                                                               std::shared_ptr<ProtectionDomain> domain,
                                                               const PairMemory& memory = {});
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;
  ~QueuePair() override = default;

  [[nodiscard]] PairAddress address() const noexcept { return resources_.address(); }
  [[nodiscard]] const std::shared_ptr<const Device>& device() const noexcept {
    return resources_.path().device;
  }
  [[nodiscard]] const Gid& local_gid() const noexcept { return resources_.path().gid; }
  [[nodiscard]] const Gid& peer_gid() const noexcept { return resources_.peer_gid(); }  // after connect()
  // Connects to the peer's queue pair. Both ends must have connected before either sends.
  [[nodiscard]] Result<void> connect(const PairAddress& peer);
  // Sends a full segment and waits for its acknowledgement. Full, because a path may lose long packets only.
  // One end calls it once, before it sends anything else. kTimeout, kShutdown, or the queue pair's error.
  [[nodiscard]] Status probe(const tcp::Deadline& until) noexcept;
  // The same without blocking: poll_probe() returns kWouldBlock until the acknowledgement has arrived.
  [[nodiscard]] Status start_probe() noexcept;
  [[nodiscard]] Status poll_probe() noexcept;

  // ---- sending ----
  // The memory of the next segment; empty without a credit or a free send.
  [[nodiscard]] std::span<std::byte> next_segment() noexcept;
  // Sends the first `bytes` of next_segment().
  [[nodiscard]] Status send(size_t bytes, const SegmentInfo& info = {}) noexcept;
  // Writes `payload` to the peer's `buffer` and then sends the first `bytes` of next_segment(), which
  // announce the payload. One call posts both. The payload must be in the region of `local_key` and stay
  // valid until sends_done() reaches the sends_posted() after this call.
  [[nodiscard]] Status send_placed(std::span<const std::byte> payload, uint32_t local_key,
                                   const AdvertisedBuffer& buffer, size_t bytes, SegmentInfo info) noexcept;
  [[nodiscard]] uint64_t sends_posted() const noexcept { return sends_posted_; }
  [[nodiscard]] uint64_t sends_done() const noexcept { return sends_done_; }
  // Sends the end segment; nothing may be sent after it. kWouldBlock when no send is free.
  [[nodiscard]] Status send_end() noexcept;
  [[nodiscard]] bool has_sent_end() const noexcept { return ended_; }
  // True when the peer's device has acknowledged everything up to the end.
  [[nodiscard]] bool has_delivered_all() const noexcept { return ended_ && sends_done_ > end_send_; }
  [[nodiscard]] bool can_send() const noexcept {
    return error_.ok() && !ended_ && credits_ > 0 && has_free_send();
  }

  // ---- receiving ----
  // Handles the completions of the device. Any status but kOk means that the queue pair is broken and sends
  // and receives no more; kTimeout means that the peer did not respond.
  [[nodiscard]] Status poll_completions() noexcept;
  [[nodiscard]] Status error() const noexcept { return error_; }
  // True when a received segment, or the peer's end, is waiting.
  [[nodiscard]] bool has_received() const noexcept { return received_first_ != received_last_; }
  // True when the peer sent its end and all segments before it were popped.
  [[nodiscard]] bool is_at_end() const noexcept {
    return has_received() && received_[received_first_ % kReceives].end;
  }
  struct Segment {
    std::span<const std::byte> bytes;
    SegmentInfo info;
  };
  // The oldest received segment, valid until pop_segment(). Must not be at the end.
  [[nodiscard]] Segment front_segment() noexcept;
  void pop_segment() noexcept;
  // Adds payload that the peer has written beside the segments to the counters of the device.
  void add_placed_bytes(size_t bytes) noexcept { bytes_in_.add(bytes); }

  // ---- memory ----
  // Returns the region that contains all of these bytes, in the own buffers or in the domain; null: none.
  [[nodiscard]] const Region* find_region(const std::byte* at, size_t bytes) noexcept;
  // The same for memory that the CPU must not access.
  [[nodiscard]] const Region* find_device_only_region(const std::byte* at, size_t bytes) noexcept {
    return regions_.find_device_only(at, bytes);
  }
  [[nodiscard]] bool has_own_buffers() const noexcept { return resources_.own_region() != nullptr; }
  // After this the peer cannot write to the own buffers; a peer that tries breaks the queue pair.
  void revoke_own_buffers() noexcept { resources_.revoke_own_buffers(); }
  // Breaks the queue pair. After this the device accesses no memory for it.
  void abort() noexcept;

  struct WorkCounters {
    uint64_t work_requests = 0;
    uint64_t post_calls = 0;
    uint64_t completions = 0;
  };
  [[nodiscard]] const WorkCounters& work_counters() const noexcept { return counters_; }

  // ---- sleeping ----
  // Becomes readable when a completion arrives after arm().
  [[nodiscard]] int event_fd() const noexcept { return resources_.completion_channel()->fd; }
  void arm() noexcept;                // call poll_completions() after it: earlier completions raise no event
  void acknowledge_event() noexcept;  // call when event_fd() is readable

 private:
  struct Received {
    uint32_t segment = 0;
    uint32_t bytes = 0;
    bool end = false;
    SegmentInfo info{};
  };
  QueuePair(const LocalPath& path, uint8_t traffic_class, std::shared_ptr<ProtectionDomain> domain,
            const PairMemory& memory);
  [[nodiscard]] Result<void> create();
  [[nodiscard]] bool has_free_send() const noexcept { return sends_posted_ - sends_done_ < kSends; }
  [[nodiscard]] Status post_receive(uint32_t segment) noexcept;
  // `write`: a write request to post in front of the send; null: none.
  [[nodiscard]] Status post_send(size_t bytes, uint32_t immediate, bool signaled,
                                 ibv_send_wr* write = nullptr) noexcept;
  [[nodiscard]] Status handle_receive(const ibv_wc& completion) noexcept;
  [[nodiscard]] Status return_credits() noexcept;

  RegionLookup regions_;
  QueuePairResources resources_;
  BatchedCounter bytes_in_;
  BatchedCounter bytes_out_;
  uint64_t sends_posted_ = 0;
  uint64_t sends_done_ = 0;
  uint32_t credits_ = 0;  // receives that the peer has posted for our segments
  uint32_t peer_segments_ = 0;
  uint32_t peer_segment_bytes_ = 0;
  uint32_t credits_to_return_ = 0;
  bool ended_ = false;
  uint64_t end_send_ = 0;  // number of the send that carries the end
  bool armed_ = false;
  bool probe_received_ = false;
  Status error_;
  WorkCounters counters_;
  std::array<Received, kReceives> received_;
  uint64_t received_first_ = 0;
  uint64_t received_last_ = 0;
};

}  // namespace sluice::transport::rdma
