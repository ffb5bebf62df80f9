// What a receiver must make of a byte stream, written from PROTOCOL.md section 2 for whole streams in memory:
// the measure for transport/tcp's FrameReader and for lanes. Knows nothing of sessions.
#pragma once

#include <optional>

#include "tests/fuzz/input.h"
#include "wire/frame.h"

namespace sluice::fuzz {

class StreamModel {
 public:
  explicit StreamModel(uint32_t max_payload) : max_payload_(max_payload) {}

  void append(std::span<const std::byte> bytes) { stream_.insert(stream_.end(), bytes.begin(), bytes.end()); }

  struct Step {
    enum class Kind : uint8_t { kNothing, kHeader, kFrame, kBreach };
    Kind kind = Kind::kNothing;  // kNothing: more bytes are needed
    Errc breach = Errc::kOk;
    wire::FrameHeader header{};
    Bytes extensions{};
    Bytes payload{};  // of kFrame
  };
  // The next thing that happens: a header that passed, then its whole frame, or a breach, after which nothing
  // follows.
  [[nodiscard]] Step next();

  [[nodiscard]] bool within_frame() const { return header_.has_value() || !stream_.empty(); }

 private:
  [[nodiscard]] Step breach(Errc code);

  const uint32_t max_payload_;
  Bytes stream_;                             // not taken yet
  std::optional<wire::FrameHeader> header_;  // passed, payload outstanding
  Bytes extensions_;
};

}  // namespace sluice::fuzz
