// Struct SessionEnd describes why a session ended. The progress loop writes it without allocating memory.
#pragma once

#include <array>
#include <cstdint>

#include "core/status.h"
#include "wire/messages.h"

namespace sluice::engine {

inline constexpr uint32_t kNoLane = 0xffffffff;

struct SessionEnd {
  Errc code = Errc::kOk;
  uint32_t lane = kNoLane;        // index of the lane connection that showed the cause
  uint32_t rank = wire::kNoRank;  // the rank that the cause concerns
  bool from_peer = false;         // a reducer sent the code and the text in ABORT
  std::array<char, wire::kMaxErrorText + 1> text{};
};

}  // namespace sluice::engine
