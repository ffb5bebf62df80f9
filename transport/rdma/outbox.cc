#include "transport/rdma/outbox.h"

#include <algorithm>
#include <cstring>

#include "core/assert.h"

namespace sluice::transport::rdma {

void Outbox::push(const wire::FrameHeader& header, std::span<const std::byte> extensions,
                  std::span<const std::byte> payload, Cookie cookie) noexcept {
  SLUICE_DASSERT(!full());
  Frame& f = frames_[index(back_++)];
  f.set(header, extensions, payload, cookie);
  f.name = {.view_version = header.view_version, .sequence = header.sequence};
  f.data = wire::is_data(header.type);
  f.let_go_when = 0;
}

size_t Outbox::take(std::span<std::byte> room) noexcept {
  if (!unsent()) return 0;
  const Frame& f = frames_[index(next_)];
  size_t taken = 0;
  if (begun_ == 0) {
    if (room.size() < f.head_bytes) return 0;
    std::memcpy(room.data(), f.head_area.data(), f.head_bytes);
    taken = begun_ = f.head_bytes;
  }
  const size_t from = begun_ - f.head_bytes;
  const size_t part = std::min(room.size() - taken, f.payload_bytes - from);
  if (part > 0) std::memcpy(room.data() + taken, f.payload + from, part);
  bytes_copied_ += part;
  begun_ += part;
  if (begun_ == f.bytes()) ++next_, begun_ = 0;
  return taken + part;
}

void Outbox::sent_until(uint64_t sends_done) noexcept {
  SLUICE_DASSERT(at_start() != nullptr && sends_done > 0);
  frames_[index(next_++)].let_go_when = sends_done;
}

const Outbox::Frame* Outbox::pop_sent(uint64_t sends_done) noexcept {
  return can_give_back(sends_done) ? &frames_[index(front_++)] : nullptr;
}

const Outbox::Frame* Outbox::pop() noexcept {
  SLUICE_DASSERT(!empty());
  if (next_ == front_) ++next_, begun_ = 0;
  return &frames_[index(front_++)];
}

bool Outbox::reads_payload(uint64_t sends_done) const noexcept {
  for (uint64_t i = front_; i != next_; ++i) {
    if (frames_[index(i)].let_go_when > sends_done) return true;
  }
  return false;
}

}  // namespace sluice::transport::rdma
