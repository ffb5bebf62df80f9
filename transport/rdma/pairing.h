// How a TCP connection gets a queue pair: each end offers one and joins it with the other's; by what words
// the addresses are exchanged is the callers' matter (PROTOCOL.md section 5). Names no verbs, and is there in
// a build without them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "transport/rdma/memory.h"
#include "transport/rdma/pair_address.h"
#include "transport/tcp/socket.h"

namespace sluice::transport::rdma {

// Which ports may be used, and how their packets are marked.
struct RailChoice {
  std::function<bool(std::string_view device, unsigned port)> allows{};  // none: all
  // Of RoCE's IP packets, DSCP in its upper six bits: what switches choose queues by.
  uint8_t traffic_class = 0;
  // The one entry of a port's address table that may be used; -1: any. A queue pair has the address of its
  // TCP connection whatever the entry: an index says which of those that have it, and of which network.
  int gid_index = -1;
};

// What connections of this machine may leave by.
struct Rails {
  std::vector<std::string> names;  // "mlx5_0 (10.0.0.1)"
  // Keeps the devices open while they are there: to open one takes milliseconds.
  std::vector<std::shared_ptr<const void>> open{};
};

// Takes what devices have to say, as contexts with queue pairs do by themselves, and lets go of those that
// are gone: whoever holds rails and may be idle asks for it now and then. Any thread.
void look_at_devices();

// Never without a name. kUnsupported with why there is none.
[[nodiscard]] Result<Rails> rails(const RailChoice& choice);

// The IP addresses of a TCP connection's ends, as a gid has them: all that a queue pair needs to know of it.
struct ConnectionEnds {
  std::array<uint8_t, 16> ours{};
  std::array<uint8_t, 16> peers{};
};
// kReset: it has none any more.
[[nodiscard]] Result<ConnectionEnds> ends_of(int connection);

struct PairOffer {
  std::unique_ptr<tcp::Companion> pair;
  std::vector<uint8_t> address;  // kPairAddressBytes for the peer, as PAIR has them
};

// A queue pair with all that it needs, for a TCP connection. kUnsupported: no device has our end's address,
// or a proof has failed between the two ends of late. kSystem with what failed. Any thread.
[[nodiscard]] Result<PairOffer> offer_pair(const ConnectionEnds& ends, const RailChoice& choice,
                                           const PairMemory& memory = {});
[[nodiscard]] Result<PairOffer> offer_pair(int connection, const RailChoice& choice,
                                           const PairMemory& memory = {});

// Whether these are the bytes of an address where `connection` ends. kBad...
[[nodiscard]] Result<void> check_pair_address(const ConnectionEnds& ends, std::span<const std::byte> address);

// Joins an offered pair with the address that the other end of `connection` has told. After it, once the peer
// has done the same, and one of them has proved it, Socket::accompany() puts it in force. kBad... where the
// address is none, or is not where the connection ends; kSystem.
[[nodiscard]] Result<void> join_pair(tcp::Companion& pair, const ConnectionEnds& ends,
                                     std::span<const std::byte> address);
[[nodiscard]] Result<void> join_pair(tcp::Companion& pair, int connection,
                                     std::span<const std::byte> address);

// Whether anything comes through: where TCP goes RDMA need not (a firewall, a route, a switch). By one end,
// once the other has joined. Waits until then, a second at most. kTimeout, kReset; kShutdown when
// interrupted.
[[nodiscard]] Result<void> prove_pair(tcp::Companion& pair, const tcp::Until& until);

// The same for who may not wait: begun at `since`, then looked at. kWouldBlock until something is known, a
// second after `since` at most.
[[nodiscard]] Result<void> start_proof(tcp::Companion& pair);
[[nodiscard]] Result<void> look_at_proof(tcp::Companion& pair, Nanos since, Nanos now);

}  // namespace sluice::transport::rdma
