#include "transport/rdma/queue_pair_resources.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <random>
#include <string>
#include <utility>

#include "transport/tcp/address.h"

namespace sluice::transport::rdma {
namespace {

constexpr size_t kSegmentsBytes = size_t{kSegmentBytes} * (kReceives + kSends);
constexpr uint8_t kHopLimit = 64;

uint32_t random_packet_number() {
  std::random_device random;
  return random() & 0xffffff;
}

tl::unexpected<Error> errno_error(const std::string& action) {
  return fail(Errc::kSystem, "cannot " + action + ": " + tcp::error_text(errno));
}

}  // namespace

QueuePairResources::QueuePairResources(LocalPath path, uint8_t traffic_class,
                                       std::shared_ptr<ProtectionDomain> domain, const PairMemory& memory)
    : path_(std::move(path)),
      traffic_class_(traffic_class),
      verbs_(path_.device->verbs()),
      domain_(std::move(domain)),
      own_buffers_(memory.own_buffers),
      owner_(memory.owner),
      first_packet_(random_packet_number()),
      events_(path_.device->events(), path_.port) {}

QueuePairResources::~QueuePairResources() {
  // The queue pair first: after its end the device does not access the memory.
  destroy_pair();
  if (completion_queue_ != nullptr) verbs_.destroy_cq(completion_queue_);
  if (channel_ != nullptr) verbs_.destroy_comp_channel(channel_);
  revoke_own_buffers();
  if (segments_region_ != nullptr) unregister_region(*path_.device, segments_region_);
  if (segments_ != nullptr) ::munmap(segments_, kSegmentsBytes);
}

Result<void> QueuePairResources::create() {
  if (auto done = map_segments(); !done) return done;
  if (auto done = register_own_buffers(); !done) return done;
  if (auto done = create_completion_queue(); !done) return done;
  return create_pair();
}

Result<void> QueuePairResources::map_segments() {
  void* const memory =
      ::mmap(nullptr, kSegmentsBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return errno_error("map memory");
  segments_ = static_cast<std::byte*>(memory);
  // A forked child of the training process must not share pages that the device writes to.
  ::madvise(memory, kSegmentsBytes, MADV_DONTFORK);
  auto region =
      register_region(*path_.device, domain_->handle(), {segments_, kSegmentsBytes}, IBV_ACCESS_LOCAL_WRITE);
  if (!region) return tl::unexpected(region.error());
  segments_region_ = *region;
  return {};
}

Result<void> QueuePairResources::register_own_buffers() {
  if (own_buffers_.empty()) return {};
  auto region = register_region(*path_.device, domain_->handle(), own_buffers_, kRemoteWriteAccess);
  if (!region) return tl::unexpected(region.error());
  own_registration_ = *region;
  own_region_ = {.begin = own_buffers_.data(),
                 .end = own_buffers_.data() + own_buffers_.size(),
                 .local_key = own_registration_->lkey,
                 .remote_key = own_registration_->rkey,
                 .remote_writable = true};
  return {};
}

Result<void> QueuePairResources::create_completion_queue() {
  channel_ = verbs_.create_comp_channel(path_.device->context());
  if (channel_ == nullptr) return errno_error("create a completion channel");
  const int flags = ::fcntl(channel_->fd, F_GETFL);
  if (flags < 0 || ::fcntl(channel_->fd, F_SETFL, flags | O_NONBLOCK) < 0)
    return errno_error("make a completion channel non-blocking");
  completion_queue_ = verbs_.create_cq(path_.device->context(), kCompletions, this, channel_, 0);
  if (completion_queue_ == nullptr) return errno_error("create a completion queue");
  return {};
}

Result<void> QueuePairResources::create_pair() {
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = completion_queue_;
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap = {.max_send_wr = kSendRequests,
                    .max_recv_wr = kReceives,
                    .max_send_sge = 1,
                    .max_recv_sge = 1,
                    .max_inline_data = kMaxInlineBytes};
  pair_ = verbs_.create_qp(domain_->handle(), &attributes);
  if (pair_ == nullptr) {
    attributes.cap.max_inline_data = 0;  // some devices have no inline data
    pair_ = verbs_.create_qp(domain_->handle(), &attributes);
  }
  if (pair_ == nullptr) return errno_error("create a queue pair");
  path_.device->counters().add_pair();
  events_.bind(pair_, completion_queue_);
  inline_bytes_ = std::min(kMaxInlineBytes, attributes.cap.max_inline_data);
  ibv_qp_attr init{};
  init.qp_state = IBV_QPS_INIT;
  init.port_num = path_.port;
  init.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  errno =
      verbs_.modify_qp(pair_, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (errno != 0) return errno_error("initialize a queue pair");
  return {};
}

Result<void> QueuePairResources::connect(const PairAddress& peer) {
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
  rtr.ah_attr.grh.hop_limit = kHopLimit;
  rtr.ah_attr.grh.traffic_class = traffic_class_;
  peer_gid_ = peer.gid;
  std::ranges::copy(peer.gid, rtr.ah_attr.grh.dgid.raw);
  errno = verbs_.modify_qp(pair_, &rtr,
                           IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (errno != 0) return errno_error("connect a queue pair");
  ibv_qp_attr rts{};
  rts.qp_state = IBV_QPS_RTS;
  rts.timeout = kAckTimeout;
  rts.retry_cnt = kRetries;
  rts.rnr_retry = kRetries;
  rts.sq_psn = first_packet_;
  rts.max_rd_atomic = 1;
  errno = verbs_.modify_qp(pair_, &rts,
                           IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                               IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  if (errno != 0) return errno_error("start a queue pair");
  return {};
}

void QueuePairResources::destroy_pair() noexcept {
  if (pair_ == nullptr) return;
  events_.bind(nullptr, completion_queue_);
  verbs_.destroy_qp(std::exchange(pair_, nullptr));
  path_.device->counters().remove_pair();
}

void QueuePairResources::revoke_own_buffers() noexcept {
  if (own_registration_ != nullptr)
    unregister_region(*path_.device, std::exchange(own_registration_, nullptr));
  owner_.reset();
}

PairAddress QueuePairResources::address() const noexcept {
  return {.number = pair_->qp_num,
          .sequence = first_packet_,
          .mtu = static_cast<uint8_t>(path_.mtu),
          .segment_bytes = kSegmentBytes,
          .segments = kDataReceives,
          .gid = path_.gid};
}

}  // namespace sluice::transport::rdma
