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
  f.id = {.view_version = header.view_version, .sequence = header.sequence};
  f.is_data = wire::is_data(header.type);
  f.free_at_send = 0;
}

size_t Outbox::copy_next(std::span<std::byte> out) noexcept {
  if (!has_unsent()) return 0;
  const Frame& f = frames_[index(next_)];
  size_t copied = 0;
  if (bytes_sent_ == 0) {
    if (out.size() < f.head_bytes) return 0;
    std::memcpy(out.data(), f.head_area.data(), f.head_bytes);
    copied = bytes_sent_ = f.head_bytes;
  }
  const size_t from = bytes_sent_ - f.head_bytes;
  const size_t part = std::min(out.size() - copied, f.payload_bytes - from);
  if (part > 0) std::memcpy(out.data() + copied, f.payload + from, part);
  bytes_copied_ += part;
  bytes_sent_ += part;
  if (bytes_sent_ == f.bytes()) ++next_, bytes_sent_ = 0;
  return copied + part;
}

void Outbox::mark_sent(uint64_t sends_done) noexcept {
  SLUICE_DASSERT(next_unstarted() != nullptr && sends_done > 0);
  frames_[index(next_++)].free_at_send = sends_done;
}

const Outbox::Frame* Outbox::pop_completed(uint64_t sends_done) noexcept {
  return has_completed(sends_done) ? &frames_[index(front_++)] : nullptr;
}

const Outbox::Frame* Outbox::pop() noexcept {
  SLUICE_DASSERT(!empty());
  if (next_ == front_) ++next_, bytes_sent_ = 0;
  return &frames_[index(front_++)];
}

bool Outbox::device_reads_payload(uint64_t sends_done) const noexcept {
  for (uint64_t i = front_; i != next_; ++i) {
    if (frames_[index(i)].free_at_send > sends_done) return true;
  }
  return false;
}

}  // namespace sluice::transport::rdma
