#include "transport/rdma/pairing.h"

#include <algorithm>

#include "core/clock.h"
#include "transport/rdma/queue_pair.h"

namespace sluice::transport::rdma {
namespace {

constexpr Nanos kProof = 1 * kSecond;

}  // namespace

Result<std::vector<std::string>> rails() {
  auto all = paths();
  if (!all) return tl::unexpected(all.error());
  std::vector<std::string> names;
  for (const Path& p : *all) {
    // Nobody is told to connect to one of a link only.
    if (!p.address.starts_with("fe80:")) names.push_back(p.device->name() + " (" + p.address + ")");
  }
  if (names.empty()) return fail(Errc::kUnsupported, "no RDMA device has an address that others can reach");
  return names;
}

Result<PairOffer> offer_pair(int connection) {
  auto path = path_of(connection);
  if (!path) return tl::unexpected(path.error());
  auto pair = QueuePair::make(*path);
  if (!pair) return tl::unexpected(pair.error());
  PairOffer offer;
  encode((*pair)->address(), offer.address);
  offer.pair = std::move(*pair);
  return offer;
}

Result<void> join_pair(tcp::Companion& pair, int connection, std::span<const std::byte> address) {
  if (address.size() != kPairAddressBytes)
    return fail(Errc::kBadLength,
                "the address of a queue pair has " + std::to_string(address.size()) + " bytes");
  const auto peer = decode_pair_address(address.first<kPairAddressBytes>());
  if (!peer) return tl::unexpected(peer.error());
  // Nobody can have us send to somebody else.
  const auto gid = gid_of_peer(connection);
  if (!gid) return tl::unexpected(gid.error());
  if (!std::ranges::equal(peer->gid, gid->raw))
    return fail(Errc::kBadField, "the peer's queue pair is at another address than its connection");
  return static_cast<QueuePair&>(pair).join(*peer);
}

Result<void> prove_pair(tcp::Companion& pair, const tcp::Until& until) {
  const tcp::Until bounded(std::min(until.deadline, monotonic_now() + kProof), until.interrupt);
  if (const Status s = static_cast<QueuePair&>(pair).prove(bounded); !s.ok())
    return fail(s.code(), "nothing comes through on the queue pair: " + std::string(to_string(s.code())));
  return {};
}

}  // namespace sluice::transport::rdma
