#include "transport/tcp/frame_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/assert.h"
#include "core/crc32c.h"

namespace sluice::transport::tcp {

FrameReader::FrameReader(uint32_t max_payload, std::span<std::byte> scratch) noexcept
    : max_payload_(max_payload), scratch_(scratch) {
  SLUICE_ASSERT(scratch.size() >= kScratchBytes);
}

unsigned FrameReader::buffers(Endpoint& ep, Handler& handler, std::array<iovec, kBlocks>& out) noexcept {
  unsigned used = 0;
  size_t room = kMaxReadBytes;
  direct_ = 0;
  predicted_count_ = 0;  // an earlier call may have remained unfilled
  if (in_payload_) {
    const size_t rest = header_.length - filled_;
    direct_ = std::min(rest, room);
    out[used++] = {payload_ + filled_, direct_};
    if (direct_ < rest) return used;
    room -= direct_;
  }
  if (staged_ == 0 && stage_want_ == kStageBytesLarge) {
    while (predicted_count_ < kMaxPredicted) {
      const ExpectedFrame next = handler.expected_frame(ep, predicted_count_ + (in_payload_ ? 1 : 0));
      if (next.length <= kSmallPayload || next.length > room) break;
      if (next.extension_bytes > kMaxExtensionBytes) break;
      PredictedFrame& a = predicted_[predicted_count_++];
      a.payload = next.payload;
      a.length = next.length;
      a.head_bytes = static_cast<uint32_t>(wire::kHeaderBytes + next.extension_bytes);
      out[used++] = {a.head.data(), a.head_bytes};
      out[used++] = {a.payload, a.length};
      room -= a.length;
    }
  }
  out[used++] = {stage_.data() + staged_, stage_want_ - staged_};
  return used;
}

Status FrameReader::consume(size_t n, Endpoint& ep, Handler& handler, EndpointCounters& counters) noexcept {
  const size_t direct = std::min(n, std::exchange(direct_, 0));
  size_t left = n - direct;
  if (direct > 0) {
    add_payload_bytes(direct);
    if (filled_ == header_.length) {
      if (const Status s = end_frame(ep, handler, counters); !s.ok()) return s;
    }
  }
  const unsigned predicted = std::exchange(predicted_count_, 0);
  if (const Status s = consume_predicted(predicted, left, ep, handler, counters); !s.ok()) return s;
  return left == 0 ? Status(Errc::kOk)
                   : parse(std::span(stage_).first(staged_ + left), ep, handler, counters);
}

Status FrameReader::feed(std::span<const std::byte> bytes, Endpoint& ep, Handler& handler,
                         EndpointCounters& counters) noexcept {
  if (const Status s = parse(bytes, ep, handler, counters); !s.ok()) return s;
  return staged_ == 0 ? Errc::kOk : Errc::kBadLength;
}

Status FrameReader::feed_placed_header(std::span<const std::byte> head, Endpoint& ep,
                                       Handler& handler) noexcept {
  if (within_frame()) return Errc::kBadLength;
  size_t used = 0;
  bool begun = false;
  if (const Status s = begin_frame(head, ep, handler, used, begun); !s.ok()) return s;
  return begun && used == head.size() ? Errc::kOk : Errc::kBadLength;
}

Status FrameReader::complete_placed(const std::byte* payload, Endpoint& ep, Handler& handler,
                                    EndpointCounters& counters) noexcept {
  if (stopped_) return Errc::kOk;
  if (payload_ != payload && header_.length > 0) {
    // The memory of on_header() may overlap the advertised buffer.
    std::memmove(payload_, payload, header_.length);
    counters.bytes_copied += header_.length;
  }
  add_payload_bytes(header_.length);
  return end_frame(ep, handler, counters);
}

Status FrameReader::complete_placed_unread(Endpoint& ep, Handler& handler,
                                           EndpointCounters& counters) noexcept {
  if (stopped_) return Errc::kOk;
  filled_ = header_.length;
  crc_ = header_.payload_crc;
  return end_frame(ep, handler, counters);
}

// Consumes the frames that match their prediction. Reduces `left` to the bytes after these frames.
Status FrameReader::consume_predicted(unsigned count, size_t& left, Endpoint& ep, Handler& handler,
                                      EndpointCounters& counters) noexcept {
  for (unsigned i = 0; i < count && left > 0 && !stopped_; ++i) {
    const PredictedFrame& a = predicted_[i];
    const auto head = std::span(a.head).first(std::min<size_t>(left, a.head_bytes));
    if (head.size() < a.head_bytes) {
      left = 0;
      return parse(head, ep, handler, counters);
    }
    size_t used = 0;
    bool begun = false;
    if (const Status s = begin_frame(head, ep, handler, used, begun); !s.ok()) return s;
    if (stopped_) break;
    const bool matches = begun && used == head.size() && header_.length == a.length && payload_ == a.payload;
    if (!matches) {
      const size_t misplaced = std::exchange(left, 0);
      return parse_misplaced(i, count, used, misplaced, ep, handler, counters);
    }
    left -= head.size();
    const size_t take = std::min<size_t>(left, a.length);
    add_payload_bytes(take);
    left -= take;
    if (filled_ == header_.length) {
      if (const Status s = end_frame(ep, handler, counters); !s.ok()) return s;
    }
  }
  if (stopped_) left = 0;
  return Errc::kOk;
}

// The prediction is wrong from frame `first` on, so `left` bytes, of which `used` are parsed, are in the
// wrong memory. Writing one frame could overwrite the bytes of another, so all bytes are first copied to the
// scratch area.
Status FrameReader::parse_misplaced(unsigned first, unsigned count, size_t used, size_t left, Endpoint& ep,
                                    Handler& handler, EndpointCounters& counters) noexcept {
  size_t copied = 0;
  const auto copy_to_scratch = [&](const std::byte* data, size_t size) {
    const size_t take = std::min(size, left);
    std::memcpy(scratch_.data() + copied, data, take);
    copied += take;
    left -= take;
  };
  for (unsigned i = first; i < count && left > 0; ++i) {
    copy_to_scratch(predicted_[i].head.data(), predicted_[i].head_bytes);
    copy_to_scratch(predicted_[i].payload, predicted_[i].length);
  }
  copy_to_scratch(stage_.data(), left);
  return parse(scratch_.subspan(used, copied - used), ep, handler, counters);
}

// Parses contiguous bytes of the stream. The remainder, less than a frame's head, goes to the stage.
Status FrameReader::parse(std::span<const std::byte> bytes, Endpoint& ep, Handler& handler,
                          EndpointCounters& counters) noexcept {
  while (!stopped_) {
    if (!in_payload_) {
      size_t used = 0;
      bool begun = false;
      if (const Status s = begin_frame(bytes, ep, handler, used, begun); !s.ok()) return s;
      if (!begun) break;
      bytes = bytes.subspan(used);
    }
    if (stopped_) break;
    if (const size_t take = std::min<size_t>(bytes.size(), header_.length - filled_); take > 0) {
      std::memcpy(payload_ + filled_, bytes.data(), take);
      bytes = bytes.subspan(take);
      counters.bytes_copied += take;
      add_payload_bytes(take);
    }
    if (filled_ != header_.length) break;
    if (const Status s = end_frame(ep, handler, counters); !s.ok()) return s;
  }
  if (stopped_) return Errc::kOk;
  if (!bytes.empty()) std::memmove(stage_.data(), bytes.data(), bytes.size());
  staged_ = bytes.size();
  return Errc::kOk;
}

// Checks a whole header with its extensions and asks for memory. `begun` stays false while bytes are missing.
Status FrameReader::begin_frame(std::span<const std::byte> bytes, Endpoint& ep, Handler& handler,
                                size_t& used, bool& begun) noexcept {
  if (bytes.size() < wire::kHeaderBytes) return Errc::kOk;
  const auto raw = bytes.first<wire::kHeaderBytes>();
  if (!decoded_) {
    if (const Status s = wire::decode_header(raw, header_); !s.ok()) return s;
    if (header_.extension_bytes() > kMaxExtensionBytes) return Errc::kBadExtension;
    decoded_ = true;
  }
  const size_t head = wire::kHeaderBytes + header_.extension_bytes();
  if (bytes.size() < head) return Errc::kOk;
  decoded_ = false;
  const auto extensions = std::span(extensions_).first(header_.extension_bytes());
  std::ranges::copy(bytes.subspan(wire::kHeaderBytes, extensions.size()), extensions.begin());
  if (const Status s = wire::verify_header(raw, extensions); !s.ok()) return s;
  if (header_.length > max_payload_) return Errc::kBadLength;
  used = head;
  begun = true;
  filled_ = 0;
  crc_ = 0;
  stage_want_ = header_.length <= kSmallPayload ? kStageBytes : kStageBytesLarge;
  in_payload_ = true;
  const ReceiveTarget target = handler.on_header(ep, header_, extensions);
  payload_ = target.payload;
  if (target.status.ok() && payload_ == nullptr && header_.length > 0) return Errc::kInternal;
  return target.status;
}

void FrameReader::add_payload_bytes(size_t n) noexcept {
  if ((header_.flags & wire::kFlagPayloadCrc) != 0) crc_ = crc32c({payload_ + filled_, n}, crc_);
  filled_ += n;
}

Status FrameReader::end_frame(Endpoint& ep, Handler& handler, EndpointCounters& counters) noexcept {
  if ((header_.flags & wire::kFlagPayloadCrc) != 0 && crc_ != header_.payload_crc)
    return Errc::kBadPayloadCrc;
  in_payload_ = false;
  ++counters.frames_in;
  counters.payload_bytes_in += header_.length;
  handler.on_frame(ep, header_, std::span(extensions_).first(header_.extension_bytes()),
                   {payload_, header_.length});
  return Errc::kOk;
}

}  // namespace sluice::transport::tcp
