#include "transport/tcp/send_queue.h"

namespace sluice::transport::tcp {

size_t SendQueue::gather(std::span<iovec> out, size_t& bytes) const noexcept {
  size_t used = 0;
  size_t skip = sent_;
  bytes = 0;
  const auto add = [&](const std::byte* data, size_t size) {
    if (skip >= size) {
      skip -= size;
      return;
    }
    out[used++] = {const_cast<std::byte*>(data + skip), size - skip};  // iovec has no const variant
    bytes += size - skip;
    skip = 0;
  };
  for (uint64_t i = front_; i != back_ && used + 2 <= out.size(); ++i) {
    const Frame& f = frames_[index(i)];
    add(f.head_area.data(), f.head_bytes);
    add(f.payload, f.payload_bytes);
  }
  return used;
}

const SendQueue::Frame* SendQueue::pop_sent() noexcept {
  if (empty()) return nullptr;
  const Frame& f = frames_[index(front_)];
  if (sent_ < f.bytes()) return nullptr;
  sent_ -= f.bytes();
  ++front_;
  return &f;
}

}  // namespace sluice::transport::tcp
