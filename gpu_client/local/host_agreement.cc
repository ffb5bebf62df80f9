#include "gpu_client/local/host_agreement.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "core/clock.h"
#include "gpu_client/engine/base/peer_error.h"
#include "gpu_client/engine/base/session_log.h"
#include "gpu_client/engine/join/colocation_agreement.h"
#include "gpu_client/engine/join/gather.h"
#include "transport/tcp/address.h"
#include "wire/sha256.h"

namespace sluice::local {
namespace {

constexpr uint8_t kRound = 0;
constexpr size_t kMaxHostName = 64;

// What a rank tells the others. Ranks with equal `host` can share memory.
struct HostInfo {
  static constexpr bool kMayGrow = true;
  std::array<uint8_t, 16> host{}, machine{};
  std::string name{};     // SLUICE_HOST_ID
  std::string address{};  // for messages
  static void visit(auto& m, auto& v) {
    v(m.host), v(m.machine), v.text(m.name, kMaxHostName), v.text(m.address, 46);
  }
};

std::array<uint8_t, 16> digest_of(const std::string& text) {
  const wire::Digest digest = wire::sha256(std::as_bytes(std::span(text)));
  std::array<uint8_t, 16> out{};
  std::copy_n(digest.begin(), out.size(), out.begin());
  return out;
}

// Memory can be shared by processes of one user in one network namespace, where their sockets are. A host
// that does not tell its boot id is one for each rank.
Result<HostInfo> this_host() {
  HostInfo info;
  const char* const name = std::getenv("SLUICE_HOST_ID");
  info.name = name != nullptr ? name : "";
  if (info.name.size() > kMaxHostName)
    return invalid("variable SLUICE_HOST_ID: more than " + std::to_string(kMaxHostName) + " characters");
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat network {};
  if (boot.empty() || ::stat("/proc/self/ns/net", &network) != 0) {
    auto random = engine::make_nonce();
    if (!random) return tl::unexpected(random.error());
    boot = "unknown " + std::string(random->begin(), random->end());
  }
  info.machine = digest_of(boot);
  info.host = digest_of(boot + " " + std::to_string(network.st_dev) + " " + std::to_string(network.st_ino) +
                        " " + std::to_string(::geteuid()) + " " + info.name);
  return info;
}

std::string rank_at(const std::vector<HostInfo>& infos, Rank rank) {
  return "rank " + std::to_string(rank) + " (" + engine::replace_control_characters(infos[rank].address) +
         ")";
}

Result<void> check_names(const std::vector<HostInfo>& infos) {
  std::map<std::string, Rank> first;
  for (Rank rank = 0; rank < infos.size(); ++rank) {
    if (infos[rank].name.empty()) continue;
    const auto [known, is_new] = first.try_emplace(infos[rank].name, rank);
    if (is_new || infos[known->second].machine == infos[rank].machine) continue;
    return fail(Errc::kMismatch, rank_at(infos, rank) + " and " + rank_at(infos, known->second) +
                                     " have the same SLUICE_HOST_ID on different machines");
  }
  return {};
}

// Says once why ranks of one machine do not share its memory.
void log_separated(const std::vector<HostInfo>& infos, const engine::Identity& identity) {
  if (identity.rank != 0) return;
  for (Rank rank = 1; rank < infos.size(); ++rank) {
    const HostInfo& info = infos[rank];
    if (!info.name.empty() || info.machine != infos[0].machine || info.host == infos[0].host) continue;
    engine::SessionLog(identity.session, identity.rank)
        .warn(rank_at(infos, rank) +
              " runs on the machine of rank 0, but as another user or in another network "
              "namespace; they count as different hosts");
    return;
  }
}

class Agreement {
 public:
  explicit Agreement(const engine::JoinOptions& options) : options_(options), identity_(options.identity) {}

  Result<Topology> run() {
    auto info = this_host();
    if (!info) return tl::unexpected(info.error());
    auto meeting = meeting_point();
    if (!meeting) return tl::unexpected(meeting.error());
    if (!*meeting) return flat();
    auto infos = exchange(**meeting, *info);
    if (!infos) return tl::unexpected(infos.error());
    if (auto checked = check_names(*infos); !checked) return tl::unexpected(checked.error());
    log_separated(*infos, identity_);
    std::vector<uint32_t> host_of;
    std::map<std::array<uint8_t, 16>, uint32_t> numbers;
    for (const HostInfo& i : *infos)
      host_of.push_back(numbers.try_emplace(i.host, static_cast<uint32_t>(numbers.size())).first->second);
    return Topology(std::move(host_of));
  }

 private:
  [[nodiscard]] Topology flat() const {
    std::vector<uint32_t> host_of(identity_.ranks);
    for (uint32_t rank = 0; rank < identity_.ranks; ++rank) host_of[rank] = rank;
    return Topology(std::move(host_of));
  }

  // Nothing if a reducer does not know GATHER: then none of the ranks calls it.
  Result<std::optional<config::Endpoint>> meeting_point() {
    if (options_.reducers.empty()) {
      const config::Endpoint& at = options_.colocation.rendezvous;
      if (identity_.rank == 0) {
        // A host may know itself by a name that others resolve differently.
        auto own = engine::start_local_reducer(options_, identity_,
                                               transport::tcp::is_numeric(at.host) ? at.host : "", at.port);
        if (!own) return add_context("co-located reducer at SLUICE_RENDEZVOUS", own.error());
        own_ = std::move(*own);
      }
      return std::optional(at);
    }
    const Nanos deadline = monotonic_now() + options_.connect_timeout;
    const config::Endpoint* least = nullptr;
    uint64_t least_id = 0;
    bool all_gather = true;
    for (const config::Endpoint& reducer : options_.reducers) {
      auto g = engine::connect_and_handshake(reducer, identity_, wire::Purpose::kControl, 0, 0, deadline);
      if (!g) return tl::unexpected(g.error());
      all_gather &= (g->welcome.features & wire::kFeatureGather) != 0;
      if (least != nullptr && g->welcome.reducer >= least_id) continue;
      least = &reducer;
      least_id = g->welcome.reducer;
    }
    if (!all_gather) return std::optional<config::Endpoint>();
    return std::optional(*least);
  }

  Result<std::vector<HostInfo>> exchange(const config::Endpoint& at, HostInfo& own) {
    const bool in_worker = options_.reducers.empty();
    const Nanos timeout =
        in_worker ? std::max(options_.connect_timeout, options_.join_timeout) : options_.connect_timeout;
    auto gather = engine::GatherConnection::open(at, identity_, in_worker, monotonic_now() + timeout);
    if (!gather) return tl::unexpected(gather.error());
    own.address = gather->local_address();
    return gather->gather_messages(kRound, own, options_.join_timeout);
  }

  const engine::JoinOptions& options_;
  const engine::Identity& identity_;
  std::unique_ptr<colocated::LocalReducer> own_;  // where the ranks meet without dedicated reducers
};

}  // namespace

Result<Topology> agree_hosts(const engine::JoinOptions& options) {
  return Agreement(options).run();
}

}  // namespace sluice::local
