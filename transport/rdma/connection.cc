#include "transport/rdma/connection.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

namespace sluice::transport::rdma {
namespace {

constexpr std::byte kReady{0x52};

tl::unexpected<Error> cut(Status status) {
  return fail(status.code(), "the peer's queue pair is not known: " + std::string(to_string(status.code())));
}

}  // namespace

Result<Connection> join(tcp::Socket socket, const tcp::Until& until) {
  if (socket.secured() != nullptr)
    return fail(Errc::kUnsupported, "no RDMA on a connection with TLS: it would carry payload in clear");
  const auto path = path_of(socket.fd());
  if (!path) return tl::unexpected(path.error());
  auto pair = QueuePair::make(*path);
  if (!pair) return tl::unexpected(pair.error());
  std::array<std::byte, kPairAddressBytes> words;
  encode((*pair)->address(), words);
  if (const Status s = write_all(socket, words, until); !s.ok()) return cut(s);
  if (const Status s = read_exact(socket, words, until); !s.ok()) return cut(s);
  const auto peer = decode_pair_address(words);
  if (!peer) return tl::unexpected(peer.error());
  // Nobody can have us send to somebody else.
  const auto peer_gid = gid_of_peer(socket.fd());
  if (!peer_gid) return tl::unexpected(peer_gid.error());
  if (!std::ranges::equal(peer->gid, peer_gid->raw))
    return fail(Errc::kBadField, "the peer's queue pair is at another address than its connection");
  if (auto joined = (*pair)->join(*peer); !joined) return tl::unexpected(joined.error());
  // What is sent before the peer's queue pair can receive is sent again only after a timeout.
  std::array<std::byte, 1> ready{kReady};
  if (const Status s = write_all(socket, ready, until); !s.ok()) return cut(s);
  if (const Status s = read_exact(socket, ready, until); !s.ok()) return cut(s);
  if (ready[0] != kReady) return fail(Errc::kBadField, "the peer's queue pair is not ready");
  return Connection{.lifeline = std::move(socket), .pair = std::move(*pair)};
}

}  // namespace sluice::transport::rdma
