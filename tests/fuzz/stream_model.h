#pragma once

#include <optional>

#include "tests/fuzz/input.h"
#include "wire/frame.h"

namespace sluice::fuzz {

// StreamModel is the reference parser of a byte stream, written from protocol.md section 2. Tests compare
// FrameReader (transport/tcp) and lanes with it. It has no knowledge of sessions.
class StreamModel {
 public:
  explicit StreamModel(uint32_t max_payload) : max_payload_(max_payload) {}

  void append(std::span<const std::byte> bytes) { stream_.insert(stream_.end(), bytes.begin(), bytes.end()); }

  struct Step {
    enum class Kind : uint8_t { kNothing, kHeader, kFrame, kViolation };
    Kind kind = Kind::kNothing;  // kNothing: more bytes are needed
    Errc violation = Errc::kOk;
    wire::FrameHeader header{};
    Bytes extensions{};
    Bytes payload{};  // for kFrame
  };
  // Returns the next step: an accepted header, then its whole frame; or a violation, after which no step
  // follows.
  [[nodiscard]] Step next();

  [[nodiscard]] bool within_frame() const { return header_.has_value() || !stream_.empty(); }

 private:
  [[nodiscard]] Step violation(Errc code);

  const uint32_t max_payload_;
  Bytes stream_;                             // not parsed yet
  std::optional<wire::FrameHeader> header_;  // accepted; its payload is outstanding
  Bytes extensions_;
};

}  // namespace sluice::fuzz
