#include "transport/rdma/pairing.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <string>

#include "core/clock.h"
#include "transport/rdma/queue_pair.h"

namespace sluice::transport::rdma {
namespace {

constexpr Nanos kProof = 1 * kSecond;
constexpr Nanos kDisproved = 60 * kSecond;

// Ways on which nothing came through, and until when nobody need try: a session opens many connections, and
// each try takes kProof.
class Disproved {
 public:
  void note(const ibv_gid& from, const ibv_gid& to) {
    const std::lock_guard lock(mutex_);
    until_[key(from, to)] = monotonic_now() + kDisproved;
  }
  [[nodiscard]] bool has(const ibv_gid& from, const ibv_gid& to) {
    const std::lock_guard lock(mutex_);
    const Nanos now = monotonic_now();
    std::erase_if(until_, [now](const auto& entry) { return entry.second <= now; });
    return until_.contains(key(from, to));
  }

 private:
  using Key = std::array<uint8_t, 32>;
  static Key key(const ibv_gid& from, const ibv_gid& to) {
    Key k;
    std::ranges::copy(from.raw, k.begin());
    std::ranges::copy(to.raw, k.begin() + 16);
    return k;
  }
  std::mutex mutex_;
  std::map<Key, Nanos> until_;
};

Disproved& disproved() {
  static auto& all = *new Disproved;  // sessions may end after statics
  return all;
}

ibv_gid gid_from(const std::array<uint8_t, 16>& bytes) {
  ibv_gid gid;
  std::ranges::copy(bytes, gid.raw);
  return gid;
}

// Of a proof that is over.
Result<void> outcome(const QueuePair& proved, Status s) {
  if (s.ok()) return {};
  if (s != Status(Errc::kShutdown)) {
    proved.device()->counts().pair_failed();
    disproved().note(proved.local_gid(), proved.peer_gid());
  }
  return fail(s.code(), "nothing comes through on the queue pair: " + std::string(to_string(s.code())));
}

}  // namespace

Result<Rails> rails(const RailChoice& choice) {
  auto all = paths(choice);
  if (!all) return tl::unexpected(all.error());
  Rails out;
  for (const Path& p : *all) {
    // Nobody is told to connect to one of a link only.
    if (p.address.starts_with("fe80:")) continue;
    out.names.push_back(p.device->name() + " (" + p.address + ")");
    out.open.push_back(keep_open(p.device));
  }
  if (out.names.empty())
    return fail(Errc::kUnsupported, "no RDMA device has an address that others can reach");
  return out;
}

Result<ConnectionEnds> ends_of(int connection) {
  const auto ours = gid_of_own_end(connection);
  const auto peers = gid_of_peer(connection);
  if (!ours || !peers) return tl::unexpected(ours ? peers.error() : ours.error());
  ConnectionEnds ends;
  std::ranges::copy(ours->raw, ends.ours.begin());
  std::ranges::copy(peers->raw, ends.peers.begin());
  return ends;
}

Result<PairOffer> offer_pair(int connection, const RailChoice& choice, const PairMemory& memory) {
  const auto ends = ends_of(connection);
  if (!ends) return tl::unexpected(ends.error());
  return offer_pair(*ends, choice, memory);
}

Result<PairOffer> offer_pair(const ConnectionEnds& ends, const RailChoice& choice, const PairMemory& memory) {
  auto path = path_of(gid_from(ends.ours), choice);
  if (!path) return tl::unexpected(path.error());
  if (disproved().has(path->gid, gid_from(ends.peers)))
    return fail(Errc::kUnsupported, "nothing came through on a queue pair a moment ago");
  const auto shared = std::static_pointer_cast<RegisteredMemory>(memory.memory);
  auto domain = shared ? shared->domain_on(path->device) : Domain::make(path->device);
  if (!domain) return tl::unexpected(domain.error());
  auto pair = QueuePair::make(*path, choice.traffic_class, std::move(*domain), memory.lends, memory.owner);
  if (!pair) return tl::unexpected(pair.error());
  PairOffer offer;
  offer.address.resize(kPairAddressBytes);
  encode((*pair)->address(), std::as_writable_bytes(std::span(offer.address)).first<kPairAddressBytes>());
  offer.pair = std::move(*pair);
  return offer;
}

Result<void> check_pair_address(const ConnectionEnds& ends, std::span<const std::byte> address) {
  if (address.size() != kPairAddressBytes)
    return fail(Errc::kBadLength,
                "the address of a queue pair has " + std::to_string(address.size()) + " bytes");
  const auto peer = decode_pair_address(address.first<kPairAddressBytes>());
  if (!peer) return tl::unexpected(peer.error());
  // Nobody can have us send to somebody else.
  if (peer->gid != ends.peers)
    return fail(Errc::kBadField, "the peer's queue pair is at another address than its connection");
  return {};
}

Result<void> join_pair(tcp::Companion& pair, int connection, std::span<const std::byte> address) {
  const auto ends = ends_of(connection);
  if (!ends) return tl::unexpected(ends.error());
  return join_pair(pair, *ends, address);
}

Result<void> join_pair(tcp::Companion& pair, const ConnectionEnds& ends, std::span<const std::byte> address) {
  if (auto checked = check_pair_address(ends, address); !checked) return checked;
  auto& ours = static_cast<QueuePair&>(pair);
  auto joined = ours.join(*decode_pair_address(address.first<kPairAddressBytes>()));
  if (!joined) ours.device()->counts().pair_failed();
  return joined;
}

Result<void> prove_pair(tcp::Companion& pair, const tcp::Until& until) {
  auto& proved = static_cast<QueuePair&>(pair);
  const tcp::Until bounded(std::min(until.deadline, monotonic_now() + kProof), until.interrupt);
  return outcome(proved, proved.prove(bounded));
}

Result<void> start_proof(tcp::Companion& pair) {
  auto& proved = static_cast<QueuePair&>(pair);
  return outcome(proved, proved.start_proof());
}

Result<void> look_at_proof(tcp::Companion& pair, Nanos since, Nanos now) {
  auto& proved = static_cast<QueuePair&>(pair);
  const Status s = proved.proof_state();
  if (s != Status(Errc::kWouldBlock)) return outcome(proved, s);
  if (now - since < kProof) return fail(Errc::kWouldBlock, "");
  return outcome(proved, Errc::kTimeout);
}

}  // namespace sluice::transport::rdma
