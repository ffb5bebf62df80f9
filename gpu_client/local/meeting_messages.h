// The messages with which the ranks of a host meet (meeting.h). Each is one packet: type u8, then the body.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "core/ids.h"
#include "core/status.h"
#include "gpu_client/local/topology.h"
#include "wire/handshake_messages.h"
#include "wire/message_codec.h"
#include "wire/sha256.h"

namespace sluice::local {

// A number of another release is refused by name: the layout of the segment belongs to it.
inline constexpr uint16_t kLocalVersion = 1;
inline constexpr size_t kMaxMeetingText = 200;
inline constexpr size_t kMaxPacket = 512;

enum class PacketType : uint8_t {
  kHello = 1,
  kChallenge = 2,
  kProof = 3,
  kSegment = 4,
  kReady = 5,
  kVerdict = 6
};

struct LocalHello {
  static constexpr PacketType kType = PacketType::kHello;
  static constexpr bool kMayGrow = true;
  uint16_t version = kLocalVersion;
  uint32_t rank = 0, ranks = 0;
  uint8_t has_token = 0;
  wire::Nonce nonce{};
  std::string host_name{};  // SLUICE_HOST_ID
  static void visit(auto& m, auto& v) {
    v(m.version), v(m.rank), v(m.ranks), v(m.has_token), v(m.nonce), v.text(m.host_name, kMaxHostName);
  }
};

struct LocalChallenge {
  static constexpr PacketType kType = PacketType::kChallenge;
  static constexpr bool kMayGrow = false;
  wire::Nonce nonce{};
  wire::Digest proof{};
  static void visit(auto& m, auto& v) { v(m.nonce), v(m.proof); }
};

struct LocalProof {
  static constexpr PacketType kType = PacketType::kProof;
  static constexpr bool kMayGrow = false;
  wire::Digest proof{};
  static void visit(auto& m, auto& v) { v(m.proof); }
};

struct LocalSegment {
  static constexpr PacketType kType = PacketType::kSegment;
  static constexpr bool kMayGrow = false;
  uint32_t ranks = 0;
  static void visit(auto& m, auto& v) { v(m.ranks); }
};

// kReady of a rank and kVerdict of the leader: kOk, or the reason why the session cannot begin.
template <PacketType type>
struct Outcome {
  static constexpr PacketType kType = type;
  static constexpr bool kMayGrow = false;
  Errc code = Errc::kOk;
  std::string text{};
  static void visit(auto& m, auto& v) { v(m.code), v.text(m.text, kMaxMeetingText); }
};
using LocalReady = Outcome<PacketType::kReady>;
using LocalVerdict = Outcome<PacketType::kVerdict>;

}  // namespace sluice::local
