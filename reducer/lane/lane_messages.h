// What conductor and lanes tell each other, over bounded rings. Values only: no ownership changes hands but
// of sockets and of the use (not the life) of a LaneSession: the conductor makes it, the lane uses
// it from the first kAttach until its kReleased, the conductor frees it after that.
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
    // socket: the handshake is over, serve rank `rank` of `session` on it. In a surviving session it replaces
    // the connection that the rank has, of which no kClosed is said then
    kAttach,
    kRankLeft,   // rank contributes no more
    kCloseRank,  // break the connection of `rank`, so that it finds out that it is not heard
    // The last: close every connection of `session`, sending the ABORT that it was given; answer kReleased
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
    kClosed,    // a rank's lane connection is gone: code says why
    kFailed,    // the session can't go on: code, rank, text
    kUnfit,     // a rank's connections break over and over by bad frames: code of the last
    kReleased,  // the lane will not touch this LaneSession again
  };
  Kind kind = Kind::kNone;
  LaneSession* session = nullptr;
  Rank rank = 0;
  Errc code = Errc::kOk;
  std::array<char, 232> text{};  // of kFailed, terminated
};

}  // namespace sluice::reducer
