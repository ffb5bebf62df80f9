// Queue pairs for TCP connections. Each end offers a queue pair, the callers exchange the addresses
// (protocol.md section 5), each end connects its queue pair to the peer's address, and one end probes the
// path. Does not include verbs.h; also for a build without verbs.
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
#include "transport/tcp/blocking_io.h"
#include "transport/tcp/socket.h"

namespace sluice::transport::rdma {

// Selects the ports to use and how their packets are marked.
struct RailChoice {
  std::function<bool(std::string_view device, unsigned port)> allows{};  // empty: all ports
  // Traffic class of the RoCE packets: DSCP in its upper six bits, by which switches select a queue.
  uint8_t traffic_class = 0;
  // The only entry of a port's GID table to use; -1: any. A queue pair always has the address of its TCP
  // connection; the index selects among the entries with that address.
  int gid_index = -1;
};

// The rails that connections of this host can use.
struct Rails {
  std::vector<std::string> names;  // "mlx5_0 (10.0.0.1)"
  // Keep the devices open, because opening takes milliseconds.
  std::vector<std::shared_ptr<const void>> open_devices{};
};

// Handles pending events of all open devices, and closes removed devices. Contexts with queue pairs do this
// themselves; an idle holder of Rails must call it periodically, because a software driver cannot remove a
// device that is open. Any thread.
void poll_device_events();

// Returns at least one rail. kUnsupported with the reason when there is none.
[[nodiscard]] Result<Rails> find_rails(const RailChoice& choice);

// The IP addresses of a TCP connection, as GIDs.
struct ConnectionGids {
  Gid local{};
  Gid peer{};
};
// kReset: the connection has no addresses any more.
[[nodiscard]] Result<ConnectionGids> connection_gids(int connection);

struct PairOffer {
  std::unique_ptr<tcp::AttachedChannel> pair;
  std::vector<uint8_t> address;  // kPairAddressBytes to send to the peer in PAIR
};

// Creates a queue pair with its resources for a TCP connection. kUnsupported: no device has the local
// address, or a recent probe between the two addresses failed. kSystem; the error of `gids`. Any thread.
[[nodiscard]] Result<PairOffer> offer_pair(const Result<ConnectionGids>& gids, const RailChoice& choice,
                                           const PairMemory& memory = {});

// Checks that `address` is a valid queue pair address at the peer of the connection. kBad... codes.
[[nodiscard]] Result<void> check_pair_address(const ConnectionGids& gids, std::span<const std::byte> address);

// Connects an offered queue pair to the address that the peer sent. When both ends have done so and one end
// has probed the path, Socket::attach_channel() puts the queue pair into use. kBad... codes as
// check_pair_address(); kSystem.
[[nodiscard]] Result<void> connect_pair(tcp::AttachedChannel& pair, const Result<ConnectionGids>& gids,
                                        std::span<const std::byte> address);

// Checks that packets reach the peer: RDMA may be blocked where TCP is not (firewall, route, switch). One end
// calls this after both have connected. Blocks for one second at most. kTimeout, kReset, kShutdown.
[[nodiscard]] Result<void> probe_pair(tcp::AttachedChannel& pair, const tcp::Deadline& until);

// The same without blocking: kWouldBlock until the result is known, one second after `since` at most.
[[nodiscard]] Result<void> start_probe(tcp::AttachedChannel& pair);
[[nodiscard]] Result<void> poll_probe(tcp::AttachedChannel& pair, Nanos since, Nanos now);

}  // namespace sluice::transport::rdma
