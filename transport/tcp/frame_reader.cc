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
  size_t room = kPieceBytes;
  direct_ = 0;
  ahead_count_ = 0;  // of a call whose buffers were not filled
  if (in_payload_) {
    const size_t rest = header_.length - filled_;
    direct_ = std::min(rest, room);
    out[used++] = {payload_ + filled_, direct_};
    if (direct_ < rest) return used;
    room -= direct_;
  }
  if (staged_ == 0 && stage_want_ == kStageBytesLarge) {
    while (ahead_count_ < kAhead) {
      const Forecast next = handler.forecast(ep, ahead_count_ + (in_payload_ ? 1 : 0));
      if (next.length <= kSmallPayload || next.length > room || next.extension_bytes > kMaxExtensions) break;
      Ahead& a = ahead_[ahead_count_++];
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
    account(direct);
    if (filled_ == header_.length) {
      if (const Status s = end_frame(ep, handler, counters); !s.ok()) return s;
    }
  }
  if (const Status s = take_ahead(std::exchange(ahead_count_, 0), left, ep, handler, counters); !s.ok())
    return s;
  return left == 0 ? Status(Errc::kOk)
                   : parse(std::span(stage_).first(staged_ + left), ep, handler, counters);
}

Status FrameReader::feed(std::span<const std::byte> bytes, Endpoint& ep, Handler& handler,
                         EndpointCounters& counters) noexcept {
  if (const Status s = parse(bytes, ep, handler, counters); !s.ok()) return s;
  return staged_ == 0 ? Errc::kOk : Errc::kBadLength;
}

Status FrameReader::feed_head(std::span<const std::byte> head, Endpoint& ep, Handler& handler) noexcept {
  if (within_frame()) return Errc::kBadLength;
  size_t used = 0;
  bool begun = false;
  if (const Status s = begin_frame(head, ep, handler, used, begun); !s.ok()) return s;
  return begun && used == head.size() ? Errc::kOk : Errc::kBadLength;
}

Status FrameReader::landed(const std::byte* payload, Endpoint& ep, Handler& handler,
                           EndpointCounters& counters) noexcept {
  if (stopped_) return Errc::kOk;
  if (payload_ != payload && header_.length > 0) {
    // A handler that lends a place may well answer with one that lies across it.
    std::memmove(payload_, payload, header_.length);
    counters.bytes_copied += header_.length;
  }
  account(header_.length);
  return end_frame(ep, handler, counters);
}

Status FrameReader::landed_unseen(Endpoint& ep, Handler& handler, EndpointCounters& counters) noexcept {
  if (stopped_) return Errc::kOk;
  filled_ = header_.length;
  crc_ = header_.payload_crc;
  return end_frame(ep, handler, counters);
}

// Frames that came where they were foreseen. `left` becomes what lies behind them.
Status FrameReader::take_ahead(unsigned count, size_t& left, Endpoint& ep, Handler& handler,
                               EndpointCounters& counters) noexcept {
  for (unsigned i = 0; i < count && left > 0 && !stopped_; ++i) {
    const Ahead& a = ahead_[i];
    const auto head = std::span(a.head).first(std::min<size_t>(left, a.head_bytes));
    if (head.size() < a.head_bytes) {
      left = 0;
      return parse(head, ep, handler, counters);
    }
    size_t used = 0;
    bool begun = false;
    if (const Status s = begin_frame(head, ep, handler, used, begun); !s.ok()) return s;
    if (stopped_) break;
    const bool foreseen = begun && used == head.size() && header_.length == a.length && payload_ == a.payload;
    if (!foreseen) {
      const size_t misplaced = std::exchange(left, 0);
      return parse_misplaced(i, count, used, misplaced, ep, handler, counters);
    }
    left -= head.size();
    const size_t take = std::min<size_t>(left, a.length);
    account(take);
    left -= take;
    if (filled_ == header_.length) {
      if (const Status s = end_frame(ep, handler, counters); !s.ok()) return s;
    }
  }
  if (stopped_) left = 0;
  return Errc::kOk;
}

// `left` bytes from frame `first` of the foreseen on, less the `used` first of them, lie anywhere but where
// they belong, and what is written for one of them could be the place of another: all of them aside first.
Status FrameReader::parse_misplaced(unsigned first, unsigned count, size_t used, size_t left, Endpoint& ep,
                                    Handler& handler, EndpointCounters& counters) noexcept {
  size_t aside = 0;
  const auto set_aside = [&](const std::byte* data, size_t size) {
    const size_t take = std::min(size, left);
    std::memcpy(scratch_.data() + aside, data, take);
    aside += take;
    left -= take;
  };
  for (unsigned i = first; i < count && left > 0; ++i) {
    set_aside(ahead_[i].head.data(), ahead_[i].head_bytes);
    set_aside(ahead_[i].payload, ahead_[i].length);
  }
  set_aside(stage_.data(), left);
  return parse(scratch_.subspan(used, aside - used), ep, handler, counters);
}

// Bytes of the stream in one piece. What is left of them, less than a header with its extensions, goes to the
// stage.
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
      account(take);
    }
    if (filled_ != header_.length) break;
    if (const Status s = end_frame(ep, handler, counters); !s.ok()) return s;
  }
  if (stopped_) return Errc::kOk;
  if (!bytes.empty()) std::memmove(stage_.data(), bytes.data(), bytes.size());
  staged_ = bytes.size();
  return Errc::kOk;
}

// With a whole header and its extensions in `bytes`: checks them, asks the handler for a place. `begun` stays
// false while bytes are missing.
Status FrameReader::begin_frame(std::span<const std::byte> bytes, Endpoint& ep, Handler& handler,
                                size_t& used, bool& begun) noexcept {
  if (bytes.size() < wire::kHeaderBytes) return Errc::kOk;
  const auto raw = bytes.first<wire::kHeaderBytes>();
  if (!decoded_) {
    if (const Status s = wire::decode_header(raw, header_); !s.ok()) return s;
    if (header_.extension_bytes() > kMaxExtensions) return Errc::kBadExtension;
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
  const Placement place = handler.on_header(ep, header_, extensions);
  payload_ = place.payload;
  if (place.status.ok() && payload_ == nullptr && header_.length > 0) return Errc::kInternal;
  return place.status;
}

void FrameReader::account(size_t n) noexcept {
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
