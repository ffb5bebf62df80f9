#include "gpu_client/local/host_agreement.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <utility>

#include "core/clock.h"
#include "gpu_client/engine/base/peer_error.h"
#include "gpu_client/engine/base/session_log.h"
#include "gpu_client/engine/join/colocation_agreement.h"
#include "gpu_client/local/segment.h"
#include "transport/tcp/address.h"
#include "transport/tcp/blocking_io.h"
#include "wire/sha256.h"

namespace sluice::local {
namespace {

constexpr uint8_t kHostsRound = 0;
constexpr uint8_t kMemoryRound = 3;  // 1 and 2 belong to the agreement on co-located reducers
constexpr uint8_t kRailsRound = 4;

// Round 3: kOk, or why the ranks of this host cannot share memory.
struct MemoryOutcome {
  static constexpr bool kMayGrow = true;
  Errc code = Errc::kOk;
  std::string text{};
  static void visit(auto& m, auto& v) { v(m.code), v.text(m.text, 200); }
};

// Of all errors of meet(), those of this host: the network may be better. Others are about the ranks. That a
// rank does not come is of the host, because all are there: round 0 has shown it.
bool is_about_host(Errc code) {
  constexpr std::array kCodes = {Errc::kMemoryLimit, Errc::kSystem,          Errc::kUnsupported,
                                 Errc::kExhausted,   Errc::kUnauthenticated, Errc::kJoinTimeout,
                                 Errc::kTimeout,     Errc::kNoCommonVersion, Errc::kBadLength};
  return std::ranges::find(kCodes, code) != kCodes.end();
}

std::array<uint8_t, 16> digest_of(const std::string& text) {
  const wire::Digest digest = wire::sha256(std::as_bytes(std::span(text)));
  std::array<uint8_t, 16> out{};
  std::copy_n(digest.begin(), out.size(), out.begin());
  return out;
}

// Differs between the namespaces of a machine; empty if this process cannot tell.
std::string namespace_id(const std::string& kind) {
  struct stat status {};
  if (::stat(("/proc/self/ns/" + kind).c_str(), &status) != 0) return {};
  return std::to_string(status.st_dev) + ":" + std::to_string(status.st_ino);
}

// Memory can be shared by processes of one user in one network namespace, where their sockets are. The same
// number in two user namespaces may be two users; a kernel without user namespaces has no file for them. A
// host that does not tell its boot id is one for each rank. IPC, mount and process namespaces don't matter:
// the ranks use neither names in them nor each other's process ids.
Result<HostInfo> this_host() {
  HostInfo info;
  info.name = this_host_name();
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  const std::string network = namespace_id("net");
  if (boot.empty() || network.empty()) {
    auto random = engine::make_nonce();
    if (!random) return tl::unexpected(random.error());
    boot = "unknown " + std::string(random->begin(), random->end());
  } else {
    info.machine = digest_of(boot);
  }
  info.host = digest_of(boot + " " + network + " " + namespace_id("user") + " " +
                        std::to_string(::geteuid()) + " " + info.name);
  return info;
}

std::string rank_at(const std::vector<HostInfo>& infos, Rank rank) {
  return "rank " + std::to_string(rank) + " (" + engine::replace_control_characters(infos[rank].address) +
         ")";
}

bool is_known(const std::array<uint8_t, 16>& machine) {
  return std::ranges::any_of(machine, [](uint8_t byte) { return byte != 0; });
}

Result<void> check_names(const std::vector<HostInfo>& infos) {
  std::map<std::string, Rank> first;
  for (Rank rank = 0; rank < infos.size(); ++rank) {
    if (infos[rank].name.empty() || !is_known(infos[rank].machine)) continue;
    const auto [known, is_new] = first.try_emplace(infos[rank].name, rank);
    if (is_new || infos[known->second].machine == infos[rank].machine) continue;
    return fail(Errc::kMismatch, rank_at(infos, rank) + " and " + rank_at(infos, known->second) +
                                     " have the same SLUICE_HOST_ID on different machines");
  }
  return {};
}

Result<void> check_exactness(const std::vector<HostInfo>& infos) {
  const auto differs = std::ranges::find_if_not(
      infos, [&](const HostInfo& info) { return info.exact == infos.front().exact; });
  if (differs == infos.end()) return {};
  const auto other = static_cast<Rank>(differs - infos.begin());
  return fail(Errc::kMismatch, "SLUICE_HOSTS is exact on " + rank_at(infos, differs->exact != 0 ? other : 0) +
                                   ", but not on " + rank_at(infos, differs->exact != 0 ? 0 : other));
}

// Says once which ranks cannot tell on which machine they are.
void log_unknown(const std::vector<HostInfo>& infos, const engine::Identity& identity) {
  std::vector<Rank> unknown;
  for (Rank rank = 0; rank < infos.size(); ++rank) {
    if (!is_known(infos[rank].machine)) unknown.push_back(rank);
  }
  if (unknown.empty() || infos.size() == 1) return;
  engine::SessionLog(identity.session, identity.rank)
      .warn(name_ranks(unknown) +
            (unknown.size() == 1 ? " counts as a host of its own" : " count as a host each") +
            ": /proc/sys/kernel/random/boot_id or /proc/self/ns/net cannot be read there");
}

// Says once why ranks of one machine do not share its memory, unless they shall not.
void log_separated(const std::vector<HostInfo>& infos, const engine::Identity& identity) {
  std::map<std::pair<std::array<uint8_t, 16>, std::string>, Rank> first;
  for (Rank rank = 0; rank < infos.size(); ++rank) {
    const HostInfo& info = infos[rank];
    if (!is_known(info.machine)) continue;
    const auto [known, is_new] = first.try_emplace({info.machine, info.name}, rank);
    if (is_new || info.host == infos[known->second].host) continue;
    engine::SessionLog(identity.session, identity.rank)
        .warn(rank_at(infos, rank) + " runs on the machine of rank " + std::to_string(known->second) +
              ", but as another user or in another network or user namespace; they count as different hosts");
    return;
  }
}

Topology flat(uint32_t ranks) {
  std::vector<uint32_t> host_of(ranks);
  std::iota(host_of.begin(), host_of.end(), 0U);
  return Topology(std::move(host_of));
}

Topology topology_of(const std::vector<HostInfo>& infos) {
  std::vector<uint32_t> host_of;
  std::map<std::array<uint8_t, 16>, uint32_t> numbers;
  for (const HostInfo& i : infos)
    host_of.push_back(numbers.try_emplace(i.host, static_cast<uint32_t>(numbers.size())).first->second);
  return Topology(std::move(host_of));
}

// Where the reducers of rank 0's host listen. A host may know itself by a name that others resolve
// differently, or by 127.0.1.1, which they do not reach: then at all its addresses.
std::string address_of_host(const config::Endpoint& rendezvous) {
  return transport::tcp::is_numeric(rendezvous.host) ? rendezvous.host : "";
}

// Its place holds no memory yet: it depends on the hosts which sessions will need how much.
Result<std::unique_ptr<colocated::LocalReducer>> start_reducer(const engine::JoinOptions& options,
                                                               uint16_t port) {
  return engine::start_local_reducer(options, options.identity,
                                     address_of_host(options.colocation.rendezvous), port, false);
}

// The reducer with the least id. Nothing if a reducer does not know GATHER, or scans the contributions of
// each rank: then no rank calls it.
Result<std::optional<config::Endpoint>> meeting_point_at_pool(const engine::JoinOptions& options) {
  const Nanos deadline = monotonic_now() + options.connect_timeout;
  const config::Endpoint* least = nullptr;
  uint64_t least_id = 0;
  bool is_possible = true;
  for (const config::Endpoint& reducer : options.reducers) {
    auto g =
        engine::connect_and_handshake(reducer, options.identity, wire::Purpose::kControl, 0, 0, deadline);
    if (!g) return tl::unexpected(g.error());
    is_possible &=
        (g->welcome.features & (wire::kFeatureGather | wire::kFeatureHealth)) == wire::kFeatureGather;
    if (least != nullptr && g->welcome.reducer >= least_id) continue;
    least = &reducer;
    least_id = g->welcome.reducer;
  }
  if (!is_possible) return std::optional<config::Endpoint>();
  return std::optional(*least);
}

}  // namespace

std::string this_host_name() {
  const char* const name = std::getenv("SLUICE_HOST_ID");
  return name != nullptr ? name : "";
}

Result<HostAgreement> HostAgreement::reach(const engine::SessionOptions& session) {
  const engine::JoinOptions& options = session.join;
  const engine::Identity& identity = options.identity;
  HostAgreement out(options, flat(identity.ranks));
  out.deadline_ = monotonic_now() + options.connect_timeout + options.join_timeout;
  auto info = this_host();
  if (!info) return tl::unexpected(info.error());
  const bool in_worker = options.reducers.empty();
  config::Endpoint at = options.colocation.rendezvous;
  if (!in_worker) {
    auto reducer = meeting_point_at_pool(options);
    if (!reducer) return tl::unexpected(reducer.error());
    if (!*reducer) return out;
    at = std::move(**reducer);
  } else if (identity.rank == 0) {
    auto own = start_reducer(options, at.port);
    if (!own) return add_context("co-located reducer at SLUICE_RENDEZVOUS", own.error());
    out.reducer_ = std::move(*own);
  }
  const Nanos timeout =
      in_worker ? std::max(options.connect_timeout, options.join_timeout) : options.connect_timeout;
  auto gather = engine::GatherConnection::open(at, identity, in_worker, monotonic_now() + timeout);
  if (!gather) return tl::unexpected(gather.error());
  out.gather_ = std::make_unique<engine::GatherConnection>(std::move(*gather));
  info->address = out.gather_->local_address();
  info->device_memory = session.device_memory ? 1 : 0;
  info->exact = session.host_sharing == engine::HostSharing::kExact ? 1 : 0;
  // Of the other hosts, no rank needs one, and none has the address; who these are is not known yet.
  if (in_worker && identity.rank != 0) {
    if (auto own = start_reducer(options, 0)) out.reducer_ = std::move(*own);
  }
  out.rank_0_address_ = transport::tcp::is_numeric(at.host) ? at.host : out.gather_->peer_address();
  if (out.reducer_) info->port = out.reducer_->port();
  auto infos = out.gather_->gather_messages(kHostsRound, *info, out.time_left());
  if (!infos) {
    Error error = engine::add_own_list(std::move(infos.error()), options.reducers);
    if (in_worker && error.code == Errc::kJoinTimeout) {
      error.text += "; if they run, they may have a list of reducers, or another SLUICE_RENDEZVOUS than " +
                    config::to_string(at);
    }
    return tl::unexpected(std::move(error));
  }
  SLUICE_RETURN_IF_ERROR(check_names(*infos));
  SLUICE_RETURN_IF_ERROR(check_exactness(*infos));
  if (identity.rank == 0) {
    log_unknown(*infos, identity);
    log_separated(*infos, identity);
  }
  out.topology_ = topology_of(*infos);
  out.infos_ = std::move(*infos);
  out.log_obstacle();
  return out;
}

Nanos HostAgreement::time_left() const noexcept {
  return std::clamp<Nanos>(deadline_ - monotonic_now(), kMillisecond, options_->join_timeout);
}

bool HostAgreement::wants_shared_memory() const {
  // Memory that only the cards can access cannot be summed by the host's processors.
  return topology_.rails > 1 &&
         std::ranges::none_of(infos_, [](const HostInfo& i) { return i.device_memory != 0; });
}

bool HostAgreement::shares_memory() const {
  if (!wants_shared_memory() || topology_.rails > kMaxRanks) return false;
  if (topology_.hosts() == 1 || !options_->reducers.empty()) return true;
  return !first_member_without_reducer();
}

std::optional<Rank> HostAgreement::first_member_without_reducer() const {
  for (uint32_t rail = 0; rail < topology_.rails; ++rail) {
    if (infos_[first_member(rail)].port == 0) return first_member(rail);
  }
  return std::nullopt;
}

config::Endpoint HostAgreement::rail_meeting_point(uint32_t rail) const {
  const Rank first = first_member(rail);
  if (first == 0) return options_->colocation.rendezvous;
  return {.host = rank_0_address_, .port = infos_[first].port};
}

void HostAgreement::hand_over_reducer(engine::JoinOptions& options) {
  if (!reducer_) return;
  // A std::function must be copyable.
  auto place = std::make_shared<std::unique_ptr<colocated::LocalReducer>>(std::move(reducer_));
  options.colocation.start_reducer =
      [place, session = options.identity.session, start = std::move(options.colocation.start_reducer)](
          const colocated::LocalReducerRequest& request) -> Result<std::unique_ptr<colocated::LocalReducer>> {
    const bool is_there = *place != nullptr && request.session == session;
    if (!is_there || (request.port != 0 && request.port != (*place)->port())) return start(request);
    SLUICE_RETURN_IF_ERROR((*place)->reserve(request, 1));
    return std::move(*place);
  };
}

// The rails whose first member this rank is have their memory at its reducer.
Result<void> HostAgreement::reserve_rails() {
  const uint32_t hosts = topology_.hosts();
  if (reducer_ == nullptr || hosts == 1) return {};
  uint32_t rails = 0;
  for (uint32_t rail = 0; rail < topology_.rails; ++rail)
    rails += first_member(rail) == options_->identity.rank ? 1 : 0;
  colocated::LocalReducerRequest rail_memory;
  rail_memory.ranks = hosts;
  rail_memory.window_bytes = options_->window_bytes;
  rail_memory.slot_bytes =
      options_->slot_bytes != 0
          ? options_->slot_bytes
          : std::min(wire::slot_bytes_for(hosts, 1, topology_.rails), options_->window_bytes);
  return reducer_->reserve(rail_memory, rails);
}

Result<bool> HostAgreement::conclude(const Result<void>& met) {
  MemoryOutcome own;
  if (!met && was_left(met.error().code)) return tl::unexpected(why_ended());
  const Result<void> possible = met ? reserve_rails() : met;
  if (!possible) {
    if (!is_about_host(possible.error().code)) {
      give_up(possible.error());
      return tl::unexpected(possible.error());
    }
    own.code = possible.error().code;
    own.text = engine::replace_control_characters(possible.error().text.substr(0, 200));
  }
  auto all = gather_->gather_messages(kMemoryRound, own, time_left());
  if (!all) return tl::unexpected(all.error());
  // Each rail has a place of its own from its join on, and so has a session of all ranks.
  if (reducer_ != nullptr) SLUICE_RETURN_IF_ERROR(reducer_->reserve({}, 0));
  // Where a rank says why it does not come, another one may wait for it in vain.
  auto refused = std::ranges::find_if(
      *all, [](const MemoryOutcome& o) { return o.code != Errc::kOk && o.code != Errc::kJoinTimeout; });
  if (refused == all->end()) refused = std::ranges::find(*all, Errc::kJoinTimeout, &MemoryOutcome::code);
  if (refused == all->end()) {
    log_hosts();
    return true;
  }
  if (options_->identity.rank == 0) {
    const auto rank = static_cast<Rank>(refused - all->begin());
    engine::SessionLog(options_->identity.session, 0)
        .warn("no host shares memory, so each rank sends its data: on the host of " + rank_at(infos_, rank) +
              ", " + engine::replace_control_characters(refused->text));
  }
  return false;
}

Result<void> HostAgreement::confirm() {
  auto all = gather_->gather(kRailsRound, {}, time_left());
  if (!all) return tl::unexpected(all.error());
  return {};
}

// Says once why ranks of one host do not share its memory, where nobody has asked for that.
void HostAgreement::log_obstacle() const {
  if (options_->identity.rank != 0 || !wants_shared_memory() || shares_memory()) return;
  const std::string what = "no host shares memory, so each rank sends its data: ";
  const engine::SessionLog log(options_->identity.session, 0);
  if (topology_.rails > kMaxRanks) {
    const auto largest = std::ranges::max_element(topology_.ranks_of, {}, &std::vector<Rank>::size);
    log.warn(what + std::to_string(largest->size()) + " ranks run on the host of " +
             rank_at(infos_, largest->front()) + "; at most " + std::to_string(kMaxRanks) +
             " can share its memory (SLUICE_HOST_ID divides it)");
  } else if (const auto first = first_member_without_reducer()) {
    log.warn(what + rank_at(infos_, *first) +
             " could not start the reducer at which other hosts would meet it");
  }
}

// A rank of this host that ends because another one did leaves the meeting too, which may be seen sooner.
bool HostAgreement::was_left(Errc code) const {
  if (code == Errc::kShutdown) return true;
  return (code == Errc::kPeerLost || code == Errc::kReset) &&
         transport::tcp::sleep_until({monotonic_now() + kReasonTime, end_fd()}) == Errc::kShutdown;
}

void HostAgreement::log_hosts() const {
  const engine::Identity& identity = options_->identity;
  if (identity.rank != 0) return;
  const std::string ranks = std::to_string(identity.ranks) + " ranks ";
  const engine::SessionLog log(identity.session, 0);
  if (topology_.hosts() == 1) {
    const std::string line = "all " + ranks + "share this host and its memory; ";
    if (options_->reducers.empty()) return log.info(line + "nothing is sent");
    static std::atomic<bool> has_warned{false};  // a training may have many sessions
    if (has_warned.exchange(true, std::memory_order_relaxed)) return;
    return log.warn(line + "the reducers get no data (SLUICE_HOSTS=off sends it)");
  }
  log.info(ranks + "on " + std::to_string(topology_.hosts()) + " hosts; each host sends its sum once, on " +
           std::to_string(topology_.rails) + " rails");
}

}  // namespace sluice::local
