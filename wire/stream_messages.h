// Messages that open point-to-point streams (protocol.md section 13).
#pragma once

#include <array>
#include <cstdint>

#include "core/status.h"
#include "wire/frame.h"

namespace sluice::wire {

// First frame of each stream. `secret` proves that the sender has the receiver's handle.
struct Stream {
  static constexpr FrameType kType = FrameType::kStream;
  static constexpr bool kMayGrow = false;
  uint8_t min_version = kVersionMin;
  uint8_t max_version = kVersionMax;
  uint16_t index = 0;  // index of this stream, below count
  uint16_t count = 0;  // streams that the sender has opened
  std::array<uint8_t, 16> secret{};
  static void visit(auto& m, auto& v) {
    v(m.min_version), v(m.max_version), v(m.index), v(m.count), v(m.secret);
  }
};

// Replaces STREAM where the receiver's handle announces features. Carries the sender's features.
struct StreamOffer {
  static constexpr FrameType kType = FrameType::kStreamOffer;
  static constexpr bool kMayGrow = false;
  Stream stream{};
  uint64_t features = 0;
  static void visit(auto& m, auto& v) { Stream::visit(m.stream, v), v(m.features); }
};

// The receiver's answer, sent on each accepted stream once all accepted streams are open.
struct StreamAnswer {
  static constexpr FrameType kType = FrameType::kStreamAnswer;
  static constexpr bool kMayGrow = false;
  Errc code = Errc::kOk;
  uint8_t version = 0;  // the highest common version
  uint8_t reserved = 0;
  uint16_t count = 0;  // streams that the receiver accepts; the sender closes the others
  static void visit(auto& m, auto& v) { v(m.code), v(m.version), v(m.reserved), v(m.count); }
};

}  // namespace sluice::wire
