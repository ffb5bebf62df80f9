#include "transport/tcp/frame_reader.h"

#include <algorithm>
#include <cstring>

#include "core/assert.h"
#include "core/crc32c.h"

namespace sluice::transport::tcp {

unsigned FrameReader::buffers(std::array<iovec, 2>& out) noexcept {
  if (!in_payload_) {
    direct_ = 0;
    out[0] = {stage_.data() + staged_, stage_want_ - staged_};
    return 1;
  }
  const size_t rest = header_.length - filled_;
  direct_ = std::min(rest, kPieceBytes);
  out[0] = {payload_ + filled_, direct_};
  if (direct_ < rest) return 1;
  out[1] = {stage_.data(), stage_want_};
  return 2;
}

Status FrameReader::consume(size_t n, Endpoint& ep, Handler& handler, EndpointCounters& counters) noexcept {
  const size_t direct = std::min(n, direct_);
  direct_ = 0;
  staged_ += n - direct;
  if (direct > 0) {
    account(direct);
    if (filled_ == header_.length) {
      if (const Status s = end_frame(ep, handler, counters); !s.ok()) return s;
    }
  }
  size_t used = 0;  // bytes of the stage that are parsed
  while (!stopped_) {
    if (!in_payload_) {
      bool begun = false;
      if (const Status s = begin_frame(ep, handler, used, begun); !s.ok()) return s;
      if (!begun) break;
    }
    if (stopped_) break;
    if (const size_t take = std::min<size_t>(staged_ - used, header_.length - filled_); take > 0) {
      std::memcpy(payload_ + filled_, stage_.data() + used, take);
      used += take;
      counters.bytes_copied += take;
      account(take);
    }
    if (filled_ != header_.length) break;
    if (const Status s = end_frame(ep, handler, counters); !s.ok()) return s;
  }
  staged_ -= used;
  if (used > 0 && staged_ > 0) std::memmove(stage_.data(), stage_.data() + used, staged_);
  return Errc::kOk;
}

// With a whole header and its extensions in the stage: checks them, asks the handler for a place. `begun`
// stays false while bytes are missing.
Status FrameReader::begin_frame(Endpoint& ep, Handler& handler, size_t& used, bool& begun) noexcept {
  const auto staged = std::span(stage_).subspan(used, staged_ - used);
  if (staged.size() < wire::kHeaderBytes) return Errc::kOk;
  const auto raw = staged.first<wire::kHeaderBytes>();
  if (!decoded_) {
    if (const Status s = wire::decode_header(raw, header_); !s.ok()) return s;
    if (header_.extension_bytes() > kMaxExtensions) return Errc::kBadExtension;
    decoded_ = true;
  }
  const size_t head = wire::kHeaderBytes + header_.extension_bytes();
  if (staged.size() < head) return Errc::kOk;
  decoded_ = false;
  const auto extensions = std::span(extensions_).first(header_.extension_bytes());
  std::ranges::copy(staged.subspan(wire::kHeaderBytes, extensions.size()), extensions.begin());
  if (const Status s = wire::verify_header(raw, extensions); !s.ok()) return s;
  if (header_.length > max_payload_) return Errc::kBadLength;
  used += head;
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
