// Packets between processes of one host: a Unix socket of type SOCK_SEQPACKET in the abstract namespace. No
// call here blocks but wait_for_packet().
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/units.h"
#include "transport/tcp/blocking_io.h"
#include "transport/tcp/socket.h"

namespace sluice::local {

using transport::tcp::Socket;

struct Packet {
  std::vector<std::byte> bytes;  // at most kMaxPacket
  Socket descriptor;             // that came with it; may be invalid
};

struct PeerProcess {
  pid_t id = 0;  // as this process sees it
  uid_t user = 0;
};

// Binds the name and listens. Errors: kAddressInUse, kSystem.
[[nodiscard]] Result<Socket> listen_at(const std::string& name, int backlog);
// Errors: kReset if nobody listens, kSystem.
[[nodiscard]] Result<Socket> connect_at(const std::string& name);
// The next connection; an invalid socket if there is none. Errors: kSystem, as for lack of descriptors.
[[nodiscard]] Result<Socket> accept_from(const Socket& listener);
[[nodiscard]] PeerProcess peer_of(const Socket& socket) noexcept;

// Sends one packet, with `descriptor` unless it is -1. kReset if the peer has closed or does not read.
[[nodiscard]] Status send_packet(const Socket& socket, const std::vector<std::byte>& bytes,
                                 int descriptor = -1);
// Receives one packet if there is one. Errors: kReset when the peer has closed, kBadLength for an empty or
// too long packet, kSystem if this process has no descriptor left for that of the packet.
[[nodiscard]] Result<std::optional<Packet>> receive_packet(const Socket& socket);
// The same, waiting until `deadline`. Errors: also kTimeout, kShutdown.
[[nodiscard]] Result<Packet> wait_for_packet(const Socket& socket, const transport::tcp::Deadline& deadline);

}  // namespace sluice::local
