#include "transport/rdma/pairing.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "core/clock.h"
#include "transport/rdma/queue_pair.h"
#include "transport/tcp/blocking_io.h"

namespace sluice::transport::rdma {
namespace {

constexpr Nanos kProbeTimeout = 1 * kSecond;
constexpr Nanos kFailedProbeMemory = 60 * kSecond;

// FailedProbes remembers the address pairs whose probe failed. Without it, each of the many connections of a
// session would wait for kProbeTimeout.
class FailedProbes {
 public:
  void add(const ibv_gid& from, const ibv_gid& to) {
    const std::lock_guard lock(mutex_);
    expiry_[key(from, to)] = monotonic_now() + kFailedProbeMemory;
  }
  [[nodiscard]] bool contains(const ibv_gid& from, const ibv_gid& to) {
    const std::lock_guard lock(mutex_);
    const Nanos now = monotonic_now();
    std::erase_if(expiry_, [now](const auto& entry) { return entry.second <= now; });
    return expiry_.contains(key(from, to));
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
  std::map<Key, Nanos> expiry_;
};

FailedProbes& failed_probes() {
  static auto& all = *new FailedProbes;  // never destroyed: sessions may outlive static objects
  return all;
}

ibv_gid gid_from_bytes(const std::array<uint8_t, 16>& bytes) {
  ibv_gid gid;
  std::ranges::copy(bytes, gid.raw);
  return gid;
}

// Records a failed probe and returns its error.
Result<void> finish_probe(const QueuePair& pair, Status s) {
  if (s.ok()) return {};
  if (s != Status(Errc::kShutdown)) {
    pair.device()->counters().add_pair_failure();
    failed_probes().add(pair.local_gid(), pair.peer_gid());
  }
  std::string text = "queue pair probe failed: " + std::string(to_string(s.code()));
  if (s == Status(Errc::kTimeout)) text += "; a firewall or switch may block RoCE (UDP port 4791)";
  return fail(s.code(), std::move(text));
}

}  // namespace

Result<Rails> find_rails(const RailChoice& choice) {
  auto all = find_local_paths(choice);
  if (!all) return tl::unexpected(all.error());
  Rails out;
  for (const LocalPath& p : *all) {
    if (p.address.starts_with("fe80:")) continue;  // other hosts cannot connect to a link-local address
    out.names.push_back(p.device->name() + " (" + p.address + ")");
    out.open_devices.push_back(keep_open(p.device));
  }
  if (out.names.empty())
    return fail(Errc::kUnsupported, "no RDMA device has an address that is not link-local");
  return out;
}

Result<ConnectionGids> connection_gids(int connection) {
  const auto local = local_gid_of(connection);
  const auto peer = peer_gid_of(connection);
  if (!local || !peer) return tl::unexpected(local ? peer.error() : local.error());
  ConnectionGids gids;
  std::ranges::copy(local->raw, gids.local.begin());
  std::ranges::copy(peer->raw, gids.peer.begin());
  return gids;
}

Result<PairOffer> offer_pair(int connection, const RailChoice& choice, const PairMemory& memory) {
  const auto gids = connection_gids(connection);
  if (!gids) return tl::unexpected(gids.error());
  return offer_pair(*gids, choice, memory);
}

Result<PairOffer> offer_pair(const ConnectionGids& gids, const RailChoice& choice, const PairMemory& memory) {
  auto path = find_local_path(gid_from_bytes(gids.local), choice);
  if (!path) return tl::unexpected(path.error());
  if (failed_probes().contains(path->gid, gid_from_bytes(gids.peer)))
    return fail(Errc::kUnsupported, "a queue pair to this peer failed its probe less than " +
                                        std::to_string(kFailedProbeMemory / kSecond) + " s ago");
  const auto shared = std::static_pointer_cast<RegisteredMemory>(memory.memory);
  auto domain = shared ? shared->domain_for(path->device) : ProtectionDomain::make(path->device);
  if (!domain) return tl::unexpected(domain.error());
  auto pair =
      QueuePair::make(*path, choice.traffic_class, std::move(*domain), memory.own_buffers, memory.owner);
  if (!pair) return tl::unexpected(pair.error());
  PairOffer offer;
  offer.address.resize(kPairAddressBytes);
  encode((*pair)->address(), std::as_writable_bytes(std::span(offer.address)).first<kPairAddressBytes>());
  offer.pair = std::move(*pair);
  return offer;
}

Result<void> check_pair_address(const ConnectionGids& gids, std::span<const std::byte> address) {
  if (address.size() != kPairAddressBytes)
    return fail(Errc::kBadLength, "queue pair address has " + std::to_string(address.size()) +
                                      " bytes, expected " + std::to_string(kPairAddressBytes));
  const auto peer = decode_pair_address(address.first<kPairAddressBytes>());
  if (!peer) return tl::unexpected(peer.error());
  // Otherwise a peer could make this end send to a third host.
  if (peer->gid != gids.peer)
    return fail(Errc::kBadField, "queue pair address of the peer differs from the address of its connection");
  return {};
}

Result<void> connect_pair(tcp::AttachedQueuePair& pair, int connection, std::span<const std::byte> address) {
  const auto gids = connection_gids(connection);
  if (!gids) return tl::unexpected(gids.error());
  return connect_pair(pair, *gids, address);
}

Result<void> connect_pair(tcp::AttachedQueuePair& pair, const ConnectionGids& gids,
                          std::span<const std::byte> address) {
  if (auto checked = check_pair_address(gids, address); !checked) return checked;
  auto& local = static_cast<QueuePair&>(pair);
  auto connected = local.connect(*decode_pair_address(address.first<kPairAddressBytes>()));
  if (!connected) local.device()->counters().add_pair_failure();
  return connected;
}

Result<void> probe_pair(tcp::AttachedQueuePair& pair, const tcp::Deadline& until) {
  auto& probed = static_cast<QueuePair&>(pair);
  const tcp::Deadline bounded(std::min(until.time, monotonic_now() + kProbeTimeout), until.interrupt_fd);
  return finish_probe(probed, probed.probe(bounded));
}

Result<void> start_probe(tcp::AttachedQueuePair& pair) {
  auto& probed = static_cast<QueuePair&>(pair);
  return finish_probe(probed, probed.start_probe());
}

Result<void> poll_probe(tcp::AttachedQueuePair& pair, Nanos since, Nanos now) {
  auto& probed = static_cast<QueuePair&>(pair);
  const Status s = probed.poll_probe();
  if (s != Status(Errc::kWouldBlock)) return finish_probe(probed, s);
  if (now - since < kProbeTimeout) return fail(Errc::kWouldBlock, "");
  return finish_probe(probed, Errc::kTimeout);
}

}  // namespace sluice::transport::rdma
