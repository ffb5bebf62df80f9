// Why a session ended, in a form that the driver can write without allocating.
#pragma once

#include <array>
#include <cstdint>

#include "core/status.h"
#include "wire/messages.h"

namespace sluice::engine {

inline constexpr uint32_t kNoLink = 0xffffffff;

struct Ending {
  Errc code = Errc::kOk;
  uint32_t link = kNoLink;        // the lane connection it was seen on
  uint32_t rank = wire::kNoRank;  // the rank it is about
  bool from_peer = false;         // told by a reducer's ABORT: the words are its own
  std::array<char, wire::kMaxErrorText + 1> text{};
};

}  // namespace sluice::engine
