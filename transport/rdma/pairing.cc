#include "transport/rdma/pairing.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "core/assert.h"
#include "core/clock.h"
#include "transport/rdma/queue_pair.h"
#include "transport/tcp/blocking_io.h"

namespace sluice::transport::rdma {
namespace {

constexpr Nanos kProbeTimeout = 1 * kSecond;
constexpr Nanos kFailedProbeMemory = 60 * kSecond;

// FailedProbes remembers failed address pairs, so that not each connection of a session waits for the
// timeout.
class FailedProbes {
 public:
  void add(const Gid& from, const Gid& to) {
    const std::lock_guard lock(mutex_);
    expiry_[{from, to}] = monotonic_now() + kFailedProbeMemory;
  }
  [[nodiscard]] bool contains(const Gid& from, const Gid& to) {
    const std::lock_guard lock(mutex_);
    const Nanos now = monotonic_now();
    std::erase_if(expiry_, [now](const auto& entry) { return entry.second <= now; });
    return expiry_.contains({from, to});
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<Gid, Gid>, Nanos> expiry_;
};

FailedProbes& failed_probes() {
  static auto& all = *new FailedProbes;  // never destroyed: sessions may outlive static objects
  return all;
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

QueuePair& as_queue_pair(tcp::AttachedChannel& channel) noexcept {
  SLUICE_ASSERT(channel.kind() == tcp::AttachedChannel::Kind::kQueuePair);
  return static_cast<QueuePair&>(channel);
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

Result<PairOffer> offer_pair(const Result<ConnectionGids>& gids, const RailChoice& choice,
                             const PairMemory& memory) {
  if (!gids) return tl::unexpected(gids.error());
  auto path = find_local_path(gids->local, choice);
  if (!path) return tl::unexpected(path.error());
  if (failed_probes().contains(path->gid, gids->peer))
    return fail(Errc::kUnsupported, "a queue pair to this peer failed its probe less than " +
                                        std::to_string(kFailedProbeMemory / kSecond) + " s ago");
  const auto shared = std::static_pointer_cast<RegisteredMemory>(memory.memory);
  auto domain = shared ? shared->domain_for(path->device) : ProtectionDomain::make(path->device);
  if (!domain) return tl::unexpected(domain.error());
  auto pair = QueuePair::make(*path, choice.traffic_class, std::move(*domain), memory);
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

Result<void> connect_pair(tcp::AttachedChannel& pair, const Result<ConnectionGids>& gids,
                          std::span<const std::byte> address) {
  if (!gids) return tl::unexpected(gids.error());
  if (auto checked = check_pair_address(*gids, address); !checked) return checked;
  auto& local = as_queue_pair(pair);
  auto connected = local.connect(*decode_pair_address(address.first<kPairAddressBytes>()));
  if (!connected) local.device()->counters().add_pair_failure();
  return connected;
}

Result<void> probe_pair(tcp::AttachedChannel& pair, const tcp::Deadline& until) {
  auto& probed = as_queue_pair(pair);
  const tcp::Deadline bounded(std::min(until.time, monotonic_now() + kProbeTimeout), until.interrupt_fd);
  return finish_probe(probed, probed.probe(bounded));
}

Result<void> start_probe(tcp::AttachedChannel& pair) {
  auto& probed = as_queue_pair(pair);
  return finish_probe(probed, probed.start_probe());
}

Result<void> poll_probe(tcp::AttachedChannel& pair, Nanos since, Nanos now) {
  auto& probed = as_queue_pair(pair);
  const Status s = probed.poll_probe();
  if (s != Status(Errc::kWouldBlock)) return finish_probe(probed, s);
  if (now - since < kProbeTimeout) return fail(Errc::kWouldBlock, "");
  return finish_probe(probed, Errc::kTimeout);
}

}  // namespace sluice::transport::rdma
