#include "transport/rdma/queue_pair.h"

#include <endian.h>
#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <string>
#include <utility>

#include "core/assert.h"
#include "transport/tcp/address.h"

namespace sluice::transport::rdma {
namespace {

constexpr size_t kMemory = size_t{kSegmentBytes} * (kReceives + kSends);
constexpr uint8_t kHops = 64;

// The immediate word of a send: what it is, and how many credits it returns.
constexpr uint32_t kEnd = 1U << 31;
constexpr uint32_t kProbe = 1U << 30;
constexpr uint32_t kPlaced = 1U << 29;
constexpr uint32_t kRecall = 1U << 28;
constexpr uint32_t kRecalled = 1U << 27;
constexpr uint32_t kLoansShift = 16;
constexpr uint32_t kLoansMask = 0xf;
constexpr uint32_t kCreditMask = 0xffff;
static_assert(kMostLoansTold <= kLoansMask);

// Which of the two a completion is of; a failed one does not say by itself.
constexpr uint64_t kOfSend = uint64_t{1} << 63;

uint32_t random_packet_number() {
  std::random_device random;
  return random() & 0xffffff;
}

uint32_t word_of(const SegmentNote& note) noexcept {
  return (note.placed ? kPlaced : 0) | (note.recall ? kRecall : 0) | (note.recalled ? kRecalled : 0) |
         uint32_t{note.loans} << kLoansShift;
}

SegmentNote note_of(uint32_t word) noexcept {
  return {.placed = (word & kPlaced) != 0,
          .recall = (word & kRecall) != 0,
          .recalled = (word & kRecalled) != 0,
          .loans = static_cast<uint8_t>(word >> kLoansShift & kLoansMask)};
}

}  // namespace

QueuePair::QueuePair(Path path, uint8_t traffic_class, std::shared_ptr<Domain> domain,
                     std::span<std::byte> lends, std::shared_ptr<const void> owner)
    : path_(std::move(path)),
      traffic_class_(traffic_class),
      calls_(path_.device->calls()),
      domain_(std::move(domain)),
      regions_(domain_),
      lends_(lends),
      owner_(std::move(owner)),
      first_packet_(random_packet_number()),
      events_(path_.device->events(), path_.port),
      bytes_in_(path_.device->counts().bytes_in()),
      bytes_out_(path_.device->counts().bytes_out()) {}

Result<std::unique_ptr<QueuePair>> QueuePair::make(const Path& path, uint8_t traffic_class,
                                                   std::shared_ptr<Domain> domain, std::span<std::byte> lends,
                                                   std::shared_ptr<const void> owner) {
  std::unique_ptr<QueuePair> pair(
      new QueuePair(path, traffic_class, std::move(domain), lends, std::move(owner)));
  if (auto built = pair->build(); !built) {
    path.device->counts().pair_failed();
    return add_context("RDMA device " + path.device->name(), built.error());
  }
  return pair;
}

Result<void> QueuePair::build() {
  const auto failed = [](const std::string& what) {
    return fail(Errc::kSystem, "cannot " + what + ": " + tcp::error_text(errno));
  };
  void* const memory = ::mmap(nullptr, kMemory, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return failed("map memory");
  memory_ = static_cast<std::byte*>(memory);
  // A child of the training process must not share pages that the device writes to.
  ::madvise(memory, kMemory, MADV_DONTFORK);
  auto region = register_region(*path_.device, domain_->handle(), {memory_, kMemory}, IBV_ACCESS_LOCAL_WRITE);
  if (!region) return tl::unexpected(region.error());
  region_ = *region;
  if (!lends_.empty()) {
    auto lent = register_region(*path_.device, domain_->handle(), lends_,
                                IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    if (!lent) return tl::unexpected(lent.error());
    lent_region_ = *lent;
    lent_keys_ = {.begin = lends_.data(),
                  .end = lends_.data() + lends_.size(),
                  .local_key = lent_region_->lkey,
                  .remote_key = lent_region_->rkey,
                  .lends = true};
  }
  channel_ = calls_.create_comp_channel(path_.device->context());
  if (channel_ == nullptr) return failed("make a completion channel");
  const int flags = ::fcntl(channel_->fd, F_GETFL);
  if (flags < 0 || ::fcntl(channel_->fd, F_SETFL, flags | O_NONBLOCK) < 0)
    return failed("make a completion channel non-blocking");
  completion_queue_ = calls_.create_cq(path_.device->context(), kCompletions, this, channel_, 0);
  if (completion_queue_ == nullptr) return failed("make a completion queue");
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = completion_queue_;
  wanted.qp_type = IBV_QPT_RC;
  wanted.cap = {.max_send_wr = kSendRequests,
                .max_recv_wr = kReceives,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = kInline};
  pair_ = calls_.create_qp(domain_->handle(), &wanted);
  if (pair_ == nullptr) {
    wanted.cap.max_inline_data = 0;  // some devices have none
    pair_ = calls_.create_qp(domain_->handle(), &wanted);
  }
  if (pair_ == nullptr) return failed("make a queue pair");
  path_.device->counts().pair_made();
  events_.name(pair_, completion_queue_);
  inline_bytes_ = std::min(kInline, wanted.cap.max_inline_data);
  ibv_qp_attr init{};
  init.qp_state = IBV_QPS_INIT;
  init.port_num = path_.port;
  init.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  errno =
      calls_.modify_qp(pair_, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (errno != 0) return failed("initialise a queue pair");
  for (uint32_t i = 0; i < kReceives; ++i) {
    if (!post_receive(i).ok()) return failed("post a receive");
  }
  return {};
}

QueuePair::~QueuePair() {
  // In this order; after the queue pair's end the device touches none of the memory.
  unmake();
  if (completion_queue_ != nullptr) calls_.destroy_cq(completion_queue_);
  if (channel_ != nullptr) calls_.destroy_comp_channel(channel_);
  withdraw();
  if (region_ != nullptr) unregister_region(*path_.device, region_);
  if (memory_ != nullptr) ::munmap(memory_, kMemory);
}

PairAddress QueuePair::address() const noexcept {
  PairAddress a{.number = pair_->qp_num,
                .sequence = first_packet_,
                .mtu = static_cast<uint8_t>(path_.mtu),
                .segment_bytes = kSegmentBytes,
                .segments = kDataReceives};
  std::memcpy(a.gid.data(), path_.gid.raw, a.gid.size());
  return a;
}

Result<void> QueuePair::join(const PairAddress& peer) {
  ibv_qp_attr rtr{};
  rtr.qp_state = IBV_QPS_RTR;
  rtr.path_mtu = std::min(path_.mtu, static_cast<ibv_mtu>(peer.mtu));
  rtr.dest_qp_num = peer.number;
  rtr.rq_psn = peer.sequence;
  rtr.max_dest_rd_atomic = 1;
  rtr.min_rnr_timer = 12;
  rtr.ah_attr.is_global = 1;
  rtr.ah_attr.port_num = path_.port;
  rtr.ah_attr.grh.sgid_index = path_.gid_index;
  rtr.ah_attr.grh.hop_limit = kHops;
  rtr.ah_attr.grh.traffic_class = traffic_class_;
  std::memcpy(peer_gid_.raw, peer.gid.data(), peer.gid.size());
  rtr.ah_attr.grh.dgid = peer_gid_;
  errno = calls_.modify_qp(pair_, &rtr,
                           IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (errno != 0) return fail(Errc::kSystem, "cannot join a queue pair: " + tcp::error_text(errno));
  ibv_qp_attr rts{};
  rts.qp_state = IBV_QPS_RTS;
  rts.timeout = kAckTimeout;
  rts.retry_cnt = kRetries;
  rts.rnr_retry = kRetries;
  rts.sq_psn = first_packet_;
  rts.max_rd_atomic = 1;
  errno = calls_.modify_qp(pair_, &rts,
                           IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                               IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  if (errno != 0) return fail(Errc::kSystem, "cannot start a queue pair: " + tcp::error_text(errno));
  credits_ = peer_segments_ = peer.segments;
  peer_segment_bytes_ = peer.segment_bytes;
  return {};
}

std::byte* QueuePair::receive_segment(uint32_t i) const noexcept {
  return memory_ + size_t{i} * kSegmentBytes;
}

std::byte* QueuePair::send_segment(uint64_t i) const noexcept {
  return memory_ + size_t{kReceives + static_cast<uint32_t>(i % kSends)} * kSegmentBytes;
}

Status QueuePair::post_receive(uint32_t segment) noexcept {
  ibv_sge place{.addr = reinterpret_cast<uintptr_t>(receive_segment(segment)),
                .length = kSegmentBytes,
                .lkey = region_->lkey};
  ibv_recv_wr wanted{.wr_id = segment, .next = nullptr, .sg_list = &place, .num_sge = 1};
  ibv_recv_wr* refused = nullptr;
  ++counts_.work_requests;
  ++counts_.doorbells;
  errno = ibv_post_recv(pair_, &wanted, &refused);
  return errno == 0 ? Errc::kOk : Errc::kReset;
}

Status QueuePair::post_send(size_t bytes, uint32_t word, bool signaled, ibv_send_wr* write) noexcept {
  SLUICE_ASSERT(send_is_free());
  ibv_sge from{.addr = reinterpret_cast<uintptr_t>(send_segment(sends_posted_)),
               .length = static_cast<uint32_t>(bytes),
               .lkey = region_->lkey};
  ibv_send_wr wanted{};
  wanted.wr_id = kOfSend | sends_posted_;
  wanted.sg_list = &from;
  wanted.num_sge = bytes > 0 ? 1 : 0;
  wanted.opcode = IBV_WR_SEND_WITH_IMM;
  wanted.imm_data = htobe32(word | std::exchange(owed_, 0));
  if (signaled || (sends_posted_ + 1) % kSignalEvery == 0) wanted.send_flags |= IBV_SEND_SIGNALED;
  if (bytes > 0 && bytes <= inline_bytes_) wanted.send_flags |= IBV_SEND_INLINE;
  if (write != nullptr) write->next = &wanted;
  counts_.work_requests += write != nullptr ? 2 : 1;
  ++counts_.doorbells;
  ibv_send_wr* refused = nullptr;
  if (ibv_post_send(pair_, write != nullptr ? write : &wanted, &refused) != 0) return broken_ = Errc::kReset;
  ++sends_posted_;
  return Errc::kOk;
}

Status QueuePair::start_proof() noexcept {
  SLUICE_ASSERT(sends_posted_ == 0);
  return post_send(std::min(kSegmentBytes, peer_segment_bytes_), kProbe, true);
}

Status QueuePair::proof_state() noexcept {
  if (const Status s = collect(); !s.ok()) return s;
  return sends_done_ > 0 ? Errc::kOk : Errc::kWouldBlock;
}

Status QueuePair::prove(const tcp::Until& until) noexcept {
  if (const Status s = start_proof(); !s.ok()) return s;
  for (;;) {
    arm();
    if (const Status s = proof_state(); s != Status(Errc::kWouldBlock)) return s;
    if (const Status s = tcp::wait_readable(event_fd(), until); !s.ok()) return s;
    event();
  }
}

std::span<std::byte> QueuePair::room() noexcept {
  if (!can_send()) return {};
  return {send_segment(sends_posted_), std::min(kSegmentBytes, peer_segment_bytes_)};
}

Status QueuePair::send(size_t bytes, const SegmentNote& note) noexcept {
  SLUICE_ASSERT(credits_ > 0 && (bytes > 0 || note.recall || note.recalled));
  --credits_;
  bytes_out_.add(bytes);
  return post_send(bytes, word_of(note), false);
}

// A write is placed before the send behind it is completed at the peer, and done here before that is.
Status QueuePair::send_placed(std::span<const std::byte> payload, uint32_t local_key, const LentPlace& place,
                              size_t bytes, SegmentNote note) noexcept {
  SLUICE_ASSERT(credits_ > 0 && bytes > 0 && payload.size() <= place.capacity);
  --credits_;
  ibv_sge from{.addr = reinterpret_cast<uintptr_t>(payload.data()),
               .length = static_cast<uint32_t>(payload.size()),
               .lkey = local_key};
  ibv_send_wr write{};
  write.wr_id = kOfSend | sends_posted_;
  write.sg_list = &from;
  write.num_sge = 1;
  write.opcode = IBV_WR_RDMA_WRITE;
  write.wr.rdma = {.remote_addr = place.address, .rkey = place.key};
  note.placed = true;
  bytes_out_.add(bytes + payload.size());
  return post_send(bytes, word_of(note), true, &write);
}

Status QueuePair::end() noexcept {
  if (!broken_.ok()) return broken_;
  if (ended_) return Errc::kOk;
  if (!send_is_free()) return Errc::kWouldBlock;
  ended_ = true;
  end_number_ = sends_posted_;
  return post_send(0, kEnd, true);
}

Status QueuePair::return_credits() noexcept {
  if (owed_ < kDataReceives / 2 || !send_is_free()) return Errc::kOk;
  return post_send(0, 0, false);
}

Status QueuePair::received(const ibv_wc& done) noexcept {
  const uint32_t word = be32toh(done.imm_data);
  const auto segment = static_cast<uint32_t>(done.wr_id);
  if (done.opcode != IBV_WC_RECV || (done.wc_flags & IBV_WC_WITH_IMM) == 0) return Errc::kBadType;
  credits_ += word & kCreditMask;
  if (credits_ > peer_segments_) return Errc::kSlotNotGranted;
  const bool end = (word & kEnd) != 0;
  if ((word & kProbe) != 0 && !std::exchange(was_probed_, true)) return post_receive(segment);
  const SegmentNote note = note_of(word);
  // A word without credits could come without bound: it takes none itself.
  if (done.byte_len == 0 && !end && !note.recall && !note.recalled)
    return (word & kCreditMask) > 0 ? post_receive(segment) : Status(Errc::kBadField);
  bytes_in_.add(done.byte_len);
  arrived_[arrived_last_++ % kReceives] = {
      .segment = segment, .bytes = done.byte_len, .end = end, .note = note};
  return Errc::kOk;
}

Status QueuePair::collect() noexcept {
  std::array<ibv_wc, 16> done;
  while (broken_.ok()) {
    const int count = ibv_poll_cq(completion_queue_, static_cast<int>(done.size()), done.data());
    if (count < 0) broken_ = Errc::kReset;
    if (count <= 0) break;
    counts_.completions += static_cast<unsigned>(count);
    for (const ibv_wc& one : std::span(done).first(static_cast<size_t>(count))) {
      if (one.status != IBV_WC_SUCCESS) {
        path_.device->counts().completion_failed(one.status);
        broken_ = one.status == IBV_WC_RETRY_EXC_ERR ? Errc::kTimeout : Errc::kReset;
      } else if ((one.wr_id & kOfSend) != 0) {
        sends_done_ = (one.wr_id & ~kOfSend) + 1;
      } else if (const Status s = received(one); !s.ok()) {
        broken_ = s;
      }
      if (!broken_.ok()) break;  // those behind it say no more than that
    }
  }
  if (broken_.ok() && events_.fatal()) broken_ = Errc::kReset;
  if (broken_.ok()) broken_ = return_credits();
  return broken_;
}

QueuePair::Segment QueuePair::front() noexcept {
  SLUICE_ASSERT(has_arrived() && !at_end());
  const Arrived& a = arrived_[arrived_first_ % kReceives];
  return {.bytes = {receive_segment(a.segment), a.bytes}, .note = a.note};
}

void QueuePair::take() noexcept {
  SLUICE_ASSERT(has_arrived() && !at_end());
  const Arrived& a = arrived_[arrived_first_++ % kReceives];
  if (!broken_.ok()) return;  // what arrived before is still taken, and makes room for nothing
  ++owed_;
  broken_ = post_receive(a.segment);
  if (broken_.ok()) broken_ = return_credits();
}

const Region* QueuePair::region_of(const std::byte* at, size_t bytes) noexcept {
  if (lent_region_ != nullptr && lent_keys_.has(at, bytes)) return &lent_keys_;
  return regions_.find(at, bytes);
}

void QueuePair::withdraw() noexcept {
  if (lent_region_ != nullptr) unregister_region(*path_.device, std::exchange(lent_region_, nullptr));
  owner_.reset();
}

void QueuePair::cut() noexcept {
  if (broken_.ok()) broken_ = Errc::kReset;
  unmake();
}

void QueuePair::unmake() noexcept {
  if (pair_ == nullptr) return;
  events_.name(nullptr, completion_queue_);
  calls_.destroy_qp(std::exchange(pair_, nullptr));
  path_.device->counts().pair_unmade();
}

int QueuePair::event_fd() const noexcept {
  return channel_->fd;
}

void QueuePair::arm() noexcept {
  bytes_in_.settle();
  bytes_out_.settle();
  if (std::exchange(armed_, true)) return;
  if (ibv_req_notify_cq(completion_queue_, 0) != 0 && broken_.ok()) broken_ = Errc::kReset;
}

void QueuePair::event() noexcept {
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  if (calls_.get_cq_event(channel_, &queue, &context) != 0) {
    if (errno != EAGAIN && errno != EINTR && broken_.ok()) broken_ = Errc::kReset;  // the device is gone
    return;
  }
  calls_.ack_cq_events(queue, 1);
  armed_ = false;
}

}  // namespace sluice::transport::rdma
