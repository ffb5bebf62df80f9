#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/result.h"
#include "core/units.h"
#include "transport/rdma/device_events.h"
#include "transport/rdma/local_path.h"
#include "transport/rdma/pair_address.h"
#include "transport/rdma/registered_memory.h"

namespace sluice::transport::rdma {

// Bytes of a segment; a frame's header and extensions must fit. Smaller segments cost more work requests per
// byte, larger segments more memory per connection.
inline constexpr uint32_t kSegmentBytes = 16 * kKiB;
// Receives posted for data. They are the peer's credits, so they bound the segments in flight.
inline constexpr uint32_t kDataReceives = 32;
// Receives posted for segments that need no credit: the end and the probe, each sent once, and at most two
// returns of credits. Credits are returned without data when half of them are owed. Until the peer has seen
// such a return it sends at most kDataReceives segments, so at most two returns are in flight.
inline constexpr uint32_t kControlReceives = 4;
inline constexpr uint32_t kReceives = kDataReceives + kControlReceives;
// Sends posted and not known to be done. Each has one segment and at most one preceding write.
inline constexpr uint32_t kSends = 32;
inline constexpr uint32_t kSendRequests = 2 * kSends;
// One send in kSignalEvery is signaled; its completion covers all earlier sends. Sends after a write are
// always signaled, because the caller waits for the payload.
inline constexpr uint32_t kSignalEvery = 8;
// Entries of the completion queue: all receives, and all send requests, because each may fail and complete.
inline constexpr uint32_t kCompletions = kReceives + kSendRequests;
// A segment of at most this size is copied into the work request if the device supports inline data.
inline constexpr uint32_t kMaxInlineBytes = 220;
// The device gives up on a peer after about (kRetries + 1) * 4.096 us * 2^kAckTimeout = 2 s; slow devices
// take up to four times longer. 7 would mean "retry without limit" on some devices.
inline constexpr uint8_t kAckTimeout = 16;
inline constexpr uint8_t kRetries = 6;

// QueuePairResources owns the verbs objects of one queue pair: the queue pair, its completion queue and
// channel, the registered memory of its segments, and the region of the buffers that this queue pair alone
// advertises. It takes the queue pair through its states. One thread at a time.
class QueuePairResources {
 public:
  // Of `memory` only the own buffers are used.
  QueuePairResources(LocalPath path, uint8_t traffic_class, std::shared_ptr<ProtectionDomain> domain,
                     const PairMemory& memory);
  QueuePairResources(const QueuePairResources&) = delete;
  QueuePairResources& operator=(const QueuePairResources&) = delete;
  ~QueuePairResources();

  // Creates all objects; the queue pair then accepts receives. kSystem with the failed call.
  [[nodiscard]] Result<void> create();
  // Connects the queue pair to the peer's; it then accepts sends. kSystem.
  [[nodiscard]] Result<void> connect(const PairAddress& peer);
  // Destroys the queue pair. After that the device accesses no memory for it.
  void destroy_pair() noexcept;
  // Deregisters the own buffers. A peer that writes to them afterwards breaks the queue pair.
  void revoke_own_buffers() noexcept;

  [[nodiscard]] const LocalPath& path() const noexcept { return path_; }
  [[nodiscard]] PairAddress address() const noexcept;
  [[nodiscard]] const Gid& peer_gid() const noexcept { return peer_gid_; }  // after connect()
  [[nodiscard]] ibv_qp* pair() const noexcept { return pair_; }
  [[nodiscard]] ibv_cq* completion_queue() const noexcept { return completion_queue_; }
  [[nodiscard]] ibv_comp_channel* completion_channel() const noexcept { return channel_; }
  [[nodiscard]] std::byte* receive_segment(uint32_t i) const noexcept {
    return segments_ + size_t{i} * kSegmentBytes;
  }
  [[nodiscard]] std::byte* send_segment(uint64_t i) const noexcept {
    return segments_ + size_t{kReceives + static_cast<uint32_t>(i % kSends)} * kSegmentBytes;
  }
  [[nodiscard]] uint32_t segment_key() const noexcept { return segments_region_->lkey; }
  // Largest segment that is sent inline; 0: the device has no inline data.
  [[nodiscard]] uint32_t inline_bytes() const noexcept { return inline_bytes_; }
  // The region of the own buffers; null when there are none or they were revoked.
  [[nodiscard]] const Region* own_region() const noexcept {
    return own_registration_ != nullptr ? &own_region_ : nullptr;
  }
  // True when an event of the device has ended the queue pair.
  [[nodiscard]] bool has_failed() const noexcept { return events_.has_failed(); }

 private:
  [[nodiscard]] Result<void> map_segments();
  [[nodiscard]] Result<void> register_own_buffers();
  [[nodiscard]] Result<void> create_completion_queue();
  [[nodiscard]] Result<void> create_pair();

  const LocalPath path_;
  const uint8_t traffic_class_;
  const Verbs& verbs_;
  const std::shared_ptr<ProtectionDomain> domain_;
  const std::span<std::byte> own_buffers_;
  std::shared_ptr<const void> owner_;
  const uint32_t first_packet_;
  PairEventSubscription events_;
  std::byte* segments_ = nullptr;
  ibv_mr* segments_region_ = nullptr;
  ibv_mr* own_registration_ = nullptr;
  Region own_region_;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* completion_queue_ = nullptr;
  ibv_qp* pair_ = nullptr;
  uint32_t inline_bytes_ = 0;
  Gid peer_gid_{};
};

}  // namespace sluice::transport::rdma
