#include "tests/fuzz/stream_model.h"

#include "core/crc32c.h"

namespace sluice::fuzz {

StreamModel::Step StreamModel::violation(Errc code) {
  stream_.clear();
  header_.reset();
  return {.kind = Step::Kind::kViolation, .violation = code};
}

StreamModel::Step StreamModel::next() {
  constexpr size_t kMaxExtensionBytes = 64;  // section 2
  const auto drop = [this](size_t n) {
    stream_.erase(stream_.begin(), stream_.begin() + static_cast<long>(n));
  };
  if (!header_) {
    if (stream_.size() < wire::kHeaderBytes) return {};
    const wire::ConstHeaderBytes raw(stream_.data(), wire::kHeaderBytes);
    wire::FrameHeader h;
    if (const Status s = wire::decode_header(raw, h); !s.ok()) return violation(s.code());
    const size_t extension_bytes = h.extension_bytes();
    if (extension_bytes > kMaxExtensionBytes) return violation(Errc::kBadExtension);
    if (stream_.size() < wire::kHeaderBytes + extension_bytes) return {};
    extensions_.assign(stream_.begin() + wire::kHeaderBytes,
                       stream_.begin() + static_cast<long>(wire::kHeaderBytes + extension_bytes));
    if (const Status s = wire::verify_header(raw, extensions_); !s.ok()) return violation(s.code());
    if (h.length > max_payload_) return violation(Errc::kBadLength);
    drop(wire::kHeaderBytes + extension_bytes);
    header_ = h;
    return {.kind = Step::Kind::kHeader, .header = h, .extensions = extensions_};
  }
  if (stream_.size() < header_->length) return {};
  Step step{.kind = Step::Kind::kFrame, .header = *header_, .extensions = extensions_};
  step.payload.assign(stream_.begin(), stream_.begin() + static_cast<long>(header_->length));
  if ((header_->flags & wire::kFlagPayloadCrc) != 0 && crc32c(step.payload) != header_->payload_crc) {
    return violation(Errc::kBadPayloadCrc);
  }
  drop(header_->length);
  header_.reset();
  return step;
}

}  // namespace sluice::fuzz
