// The messages between the control loop and a lane, carried by two bounded rings.
//
// Messages are plain values. Two things change hands: a socket with kAttach, and the use of a LaneSession.
// The control loop creates the LaneSession, the lane uses it from the first kAttach to kReleased, and the
// control loop frees it after kReleased.
#pragma once

#include <array>
#include <cstdint>

#include "core/ids.h"
#include "core/status.h"
#include "transport/tcp/socket.h"

namespace sluice::reducer {

class LaneSession;

struct LaneCommand {
  enum class Kind : uint8_t {
    kNone,
    // The handshake on `socket` is complete: serve rank `rank` of `session` on it. In a fault-tolerant
    // session the new connection replaces the rank's old one, and the lane sends no kClosed for the old one.
    kAttach,
    kRankLeft,   // `rank` contributes no more
    kCloseRank,  // close the connection of `rank`, so that the rank learns that the reducer does not hear it
    // The last command of a session: send its ABORT, close every connection and answer with kReleased.
    kEnd,
  };
  Kind kind = Kind::kNone;
  LaneSession* session = nullptr;
  Rank rank = 0;
  transport::tcp::RawSocket socket{};
};

struct LaneEvent {
  enum class Kind : uint8_t {
    kNone,
    kClosed,            // a lane connection of `rank` closed, for the reason `code`
    kFailed,            // the session cannot continue: `code`, `rank`, `text`
    kTooManyBadFrames,  // connections of `rank` keep breaking by bad frames; `code` is the last reason
    kReleased,          // the lane no longer uses this LaneSession
  };
  Kind kind = Kind::kNone;
  LaneSession* session = nullptr;
  Rank rank = 0;
  Errc code = Errc::kOk;
  std::array<char, 232> text{};  // of kFailed, NUL-terminated
};

}  // namespace sluice::reducer
