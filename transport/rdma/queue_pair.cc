#include "transport/rdma/queue_pair.h"

#include <endian.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/assert.h"
#include "transport/tcp/address.h"
#include "transport/tcp/blocking_io.h"

namespace sluice::transport::rdma {
namespace {

// Marks the ids of send requests: the opcode of a failed completion is undefined.
constexpr uint64_t kSendId = uint64_t{1} << 63;

}  // namespace

QueuePair::QueuePair(const LocalPath& path, uint8_t traffic_class, std::shared_ptr<ProtectionDomain> domain,
                     const PairMemory& memory)
    : tcp::AttachedChannel(Kind::kQueuePair),
      regions_(domain),
      resources_(path, traffic_class, std::move(domain), memory),
      bytes_in_(path.device->counters().bytes_in()),
      bytes_out_(path.device->counters().bytes_out()) {}

Result<std::unique_ptr<QueuePair>> QueuePair::make(const LocalPath& path, uint8_t traffic_class,
                                                   std::shared_ptr<ProtectionDomain> domain,
                                                   const PairMemory& memory) {
  std::unique_ptr<QueuePair> pair(new QueuePair(path, traffic_class, std::move(domain), memory));
  if (auto created = pair->create(); !created) {
    path.device->counters().add_pair_failure();
    return add_context("RDMA device " + path.device->name(), created.error());
  }
  return pair;
}

Result<void> QueuePair::create() {
  if (auto created = resources_.create(); !created) return created;
  for (uint32_t i = 0; i < kReceives; ++i) {
    if (!post_receive(i).ok()) return fail(Errc::kSystem, "cannot post a receive: " + tcp::error_text(errno));
  }
  return {};
}

Result<void> QueuePair::connect(const PairAddress& peer) {
  if (auto connected = resources_.connect(peer); !connected) return connected;
  credits_ = peer_segments_ = peer.segments;
  peer_segment_bytes_ = peer.segment_bytes;
  return {};
}

Status QueuePair::post_receive(uint32_t segment) noexcept {
  ibv_sge target{.addr = reinterpret_cast<uintptr_t>(resources_.receive_segment(segment)),
                 .length = kSegmentBytes,
                 .lkey = resources_.segment_key()};
  ibv_recv_wr request{.wr_id = segment, .next = nullptr, .sg_list = &target, .num_sge = 1};
  ibv_recv_wr* failed = nullptr;
  ++counters_.work_requests;
  ++counters_.post_calls;
  errno = ibv_post_recv(resources_.pair(), &request, &failed);
  return errno == 0 ? Errc::kOk : Errc::kReset;
}

Status QueuePair::post_send(size_t bytes, uint32_t immediate, bool signaled, ibv_send_wr* write) noexcept {
  SLUICE_ASSERT(has_free_send());
  ibv_sge source{.addr = reinterpret_cast<uintptr_t>(resources_.send_segment(sends_posted_)),
                 .length = static_cast<uint32_t>(bytes),
                 .lkey = resources_.segment_key()};
  ibv_send_wr send{};
  send.wr_id = kSendId | sends_posted_;
  send.sg_list = &source;
  send.num_sge = bytes > 0 ? 1 : 0;
  send.opcode = IBV_WR_SEND_WITH_IMM;
  send.imm_data = htobe32(immediate | std::exchange(credits_to_return_, 0));
  if (signaled || (sends_posted_ + 1) % kSignalEvery == 0) send.send_flags |= IBV_SEND_SIGNALED;
  if (bytes > 0 && bytes <= resources_.inline_bytes()) send.send_flags |= IBV_SEND_INLINE;
  if (write != nullptr) write->next = &send;
  counters_.work_requests += write != nullptr ? 2 : 1;
  ++counters_.post_calls;
  ibv_send_wr* failed = nullptr;
  if (ibv_post_send(resources_.pair(), write != nullptr ? write : &send, &failed) != 0)
    return error_ = Errc::kReset;
  ++sends_posted_;
  return Errc::kOk;
}

Status QueuePair::start_probe() noexcept {
  SLUICE_ASSERT(sends_posted_ == 0);
  return post_send(std::min(kSegmentBytes, peer_segment_bytes_), kImmediateProbe, true);
}

Status QueuePair::poll_probe() noexcept {
  if (const Status s = poll_completions(); !s.ok()) return s;
  return sends_done_ > 0 ? Errc::kOk : Errc::kWouldBlock;
}

Status QueuePair::probe(const tcp::Deadline& until) noexcept {
  if (const Status s = start_probe(); !s.ok()) return s;
  for (;;) {
    arm();
    if (const Status s = poll_probe(); s != Status(Errc::kWouldBlock)) return s;
    if (const Status s = tcp::wait_ready(event_fd(), POLLIN, until); !s.ok()) return s;
    acknowledge_event();
  }
}

std::span<std::byte> QueuePair::next_segment() noexcept {
  if (!can_send()) return {};
  return {resources_.send_segment(sends_posted_), std::min(kSegmentBytes, peer_segment_bytes_)};
}

Status QueuePair::send(size_t bytes, const SegmentInfo& info) noexcept {
  SLUICE_ASSERT(credits_ > 0 && (bytes > 0 || info.recall || info.recalled));
  --credits_;
  bytes_out_.add(bytes);
  return post_send(bytes, encode_immediate(info), false);
}

// The queue pair executes requests in order: the peer's memory has the payload before the peer receives the
// send, and the completion of the send covers the write.
Status QueuePair::send_placed(std::span<const std::byte> payload, uint32_t local_key,
                              const AdvertisedBuffer& buffer, size_t bytes, SegmentInfo info) noexcept {
  SLUICE_ASSERT(credits_ > 0 && bytes > 0 && payload.size() <= buffer.capacity);
  --credits_;
  ibv_sge source{.addr = reinterpret_cast<uintptr_t>(payload.data()),
                 .length = static_cast<uint32_t>(payload.size()),
                 .lkey = local_key};
  ibv_send_wr write{};
  write.wr_id = kSendId | sends_posted_;
  write.sg_list = &source;
  write.num_sge = 1;
  write.opcode = IBV_WR_RDMA_WRITE;
  write.wr.rdma = {.remote_addr = buffer.address, .rkey = buffer.key};
  info.placed = true;
  bytes_out_.add(bytes + payload.size());
  return post_send(bytes, encode_immediate(info), true, &write);
}

Status QueuePair::send_end() noexcept {
  if (!error_.ok()) return error_;
  if (ended_) return Errc::kOk;
  if (!has_free_send()) return Errc::kWouldBlock;
  ended_ = true;
  end_send_ = sends_posted_;
  return post_send(0, kImmediateEnd, true);
}

Status QueuePair::return_credits() noexcept {
  if (credits_to_return_ < kDataReceives / 2 || !has_free_send()) return Errc::kOk;
  return post_send(0, 0, false);
}

Status QueuePair::handle_receive(const ibv_wc& completion) noexcept {
  const uint32_t immediate = be32toh(completion.imm_data);
  const auto segment = static_cast<uint32_t>(completion.wr_id);
  if (completion.opcode != IBV_WC_RECV || (completion.wc_flags & IBV_WC_WITH_IMM) == 0) return Errc::kBadType;
  credits_ += immediate & kImmediateCreditMask;
  if (credits_ > peer_segments_) return Errc::kSlotNotGranted;
  const bool end = (immediate & kImmediateEnd) != 0;
  const bool probe = (immediate & kImmediateProbe) != 0;
  if (probe && !std::exchange(probe_received_, true)) return post_receive(segment);
  const SegmentInfo info = decode_immediate(immediate);
  // An empty segment needs no credit. It must return some, because a peer could send any number.
  if (completion.byte_len == 0 && !end && !info.recall && !info.recalled)
    return (immediate & kImmediateCreditMask) > 0 ? post_receive(segment) : Status(Errc::kBadField);
  bytes_in_.add(completion.byte_len);
  received_[received_last_++ % kReceives] = {
      .segment = segment, .bytes = completion.byte_len, .end = end, .info = info};
  return Errc::kOk;
}

Status QueuePair::poll_completions() noexcept {
  std::array<ibv_wc, 16> batch;
  while (error_.ok()) {
    const int count =
        ibv_poll_cq(resources_.completion_queue(), static_cast<int>(batch.size()), batch.data());
    if (count < 0) error_ = Errc::kReset;
    if (count <= 0) break;
    counters_.completions += static_cast<unsigned>(count);
    for (const ibv_wc& completion : std::span(batch).first(static_cast<size_t>(count))) {
      if (completion.status != IBV_WC_SUCCESS) {
        device()->counters().add_completion_error(completion.status);
        error_ = completion.status == IBV_WC_RETRY_EXC_ERR ? Errc::kTimeout : Errc::kReset;
      } else if ((completion.wr_id & kSendId) != 0) {
        sends_done_ = (completion.wr_id & ~kSendId) + 1;
      } else if (const Status s = handle_receive(completion); !s.ok()) {
        error_ = s;
      }
      if (!error_.ok()) break;  // the other completions follow from this error
    }
  }
  if (error_.ok() && resources_.has_failed()) error_ = Errc::kReset;
  if (error_.ok()) error_ = return_credits();
  return error_;
}

QueuePair::Segment QueuePair::front_segment() noexcept {
  SLUICE_ASSERT(has_received() && !is_at_end());
  const Received& r = received_[received_first_ % kReceives];
  return {.bytes = {resources_.receive_segment(r.segment), r.bytes}, .info = r.info};
}

void QueuePair::pop_segment() noexcept {
  SLUICE_ASSERT(has_received() && !is_at_end());
  const Received& r = received_[received_first_++ % kReceives];
  if (!error_.ok()) return;  // segments that arrived before the error are still read
  ++credits_to_return_;
  error_ = post_receive(r.segment);
  if (error_.ok()) error_ = return_credits();
}

const Region* QueuePair::find_region(const std::byte* at, size_t bytes) noexcept {
  const Region* const own = resources_.own_region();
  if (own != nullptr && own->contains(at, bytes)) return own;
  return regions_.find(at, bytes);
}

void QueuePair::abort() noexcept {
  if (error_.ok()) error_ = Errc::kReset;
  resources_.destroy_pair();
}

void QueuePair::arm() noexcept {
  bytes_in_.flush();
  bytes_out_.flush();
  if (std::exchange(armed_, true)) return;
  if (ibv_req_notify_cq(resources_.completion_queue(), 0) != 0 && error_.ok()) error_ = Errc::kReset;
}

void QueuePair::acknowledge_event() noexcept {
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  const Verbs& verbs = device()->verbs();
  if (verbs.get_cq_event(resources_.completion_channel(), &queue, &context) != 0) {
    if (errno != EAGAIN && errno != EINTR && error_.ok()) error_ = Errc::kReset;  // the device was removed
    return;
  }
  verbs.ack_cq_events(queue, 1);
  armed_ = false;
}

}  // namespace sluice::transport::rdma
