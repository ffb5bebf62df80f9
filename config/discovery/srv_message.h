// The DNS's messages as far as SRV records need them (RFC 1035 section 4, RFC 2782, RFC 6891): bytes in,
// values out. Ours, since the plugin may need no library but libc's own, whose resolver can block for
// minutes on a server that takes a connection and says nothing.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "config/discovery/surroundings.h"
#include "core/result.h"

namespace sluice::config::discovery {

using DnsBytes = std::vector<uint8_t>;

// What a server is told that it may send over UDP without cutting.
inline constexpr uint16_t kUdpPayload = 1232;

// kInvalidArgument when `name` is none: labels of 1 to 63 bytes, 253 in all.
[[nodiscard]] Result<DnsBytes> srv_query(const std::string& name, uint16_t id);

struct SrvReply {
  enum class Kind : uint8_t {
    kRecords,  // at least one
    kNothing,  // there is no such name, or it has no such records
    kCut,      // ask again over TCP
    kRefused,  // by the server, for a reason of its own: `code`
  };
  Kind kind = Kind::kNothing;
  uint8_t code = 0;  // RCODE
  std::vector<SrvRecord> records;
};

// kBadField when it is no answer to the query of this id: somebody else's, or malformed.
[[nodiscard]] Result<SrvReply> read_srv_reply(std::span<const uint8_t> bytes, uint16_t id);

}  // namespace sluice::config::discovery
