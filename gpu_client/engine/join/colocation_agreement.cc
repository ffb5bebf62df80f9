#include "gpu_client/engine/join/colocation_agreement.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "core/clock.h"
#include "core/link_split.h"
#include "gpu_client/engine/base/peer_error.h"
#include "gpu_client/engine/base/session_log.h"
#include "gpu_client/engine/join/gather.h"
#include "transport/tcp/address.h"
#include "wire/view.h"

namespace sluice::engine {
namespace {

// A reducer in the same network answers within milliseconds. A firewall that drops packets answers never.
constexpr Nanos kProbeTimeout = 3 * kSecond;
constexpr Nanos kLeastProbeTimeout = 100 * kMillisecond;
constexpr uint64_t kUnknownRate = 1'000'000'000;

std::string rank_name(size_t rank) {
  return "rank " + std::to_string(rank);
}

class Negotiation {
 public:
  Negotiation(const JoinOptions& options, const JoinLimit& limit, const Identity& identity,
              std::span<const Handshake> pool)
      : options_(options),
        limit_(limit),
        identity_(identity),
        pool_(pool),
        log_(identity.log()),
        meets_at_own_reducer_(pool.empty() && identity.rank == 0) {}

  Result<Colocation> run() {
    auto done = exchange_infos();
    if (done) done = check_infos();
    if (!done) return tl::unexpected(done.error());
    if (auto refused = check_rdma(); !refused) return tl::unexpected(refused.error());
    if (prefers_rdma()) return Colocation{};
    result_.worker_rates = assume_worker_rates(infos_);
    for (uint32_t rank = 0; rank < infos_.size(); ++rank) {
      const PeerInfo& info = infos_[rank];
      if (info.reducer == 0) continue;
      // Every rank has reached rank 0's reducer at the meeting point.
      const bool is_meeting_point = pool_.empty() && rank == 0;
      result_.reducers.push_back({.address = is_meeting_point
                                                 ? meeting_point()
                                                 : config::Endpoint{.host = info.host, .port = info.port},
                                  .id = info.reducer,
                                  .rank = rank});
    }
    limit_reducers();
    if (pays()) {
      if (done = exclude_unreachable(); !done) return tl::unexpected(done.error());
    }
    if (!pays()) {
      if (pool_.empty())
        return fail(Errc::kReducerLost, "no rank has a co-located reducer that all reach" + reasons());
      return Colocation{};
    }
    log_split();
    const auto is_own = [this](const auto& r) { return r.rank == identity_.rank; };
    if (std::ranges::any_of(result_.reducers, is_own)) result_.own = std::move(own_);
    return std::move(result_);
  }

 private:
  // The reducer with the lowest id, so that ranks that list the reducers in another order meet too.
  [[nodiscard]] const config::Endpoint& meeting_point() const {
    if (pool_.empty()) return options_.colocation.rendezvous;
    const auto lowest =
        std::ranges::min_element(pool_, {}, [](const Handshake& g) { return g.welcome.reducer; });
    return options_.reducers[static_cast<size_t>(lowest - pool_.begin())];
  }
  [[nodiscard]] uint64_t pool_hash() const {
    wire::View pool;
    for (size_t i = 0; i < pool_.size(); ++i)
      pool.reducers.push_back({.id = pool_[i].welcome.reducer, .weight = options_.reducers[i].weight});
    return wire::view_hash(pool);
  }
  Result<void> start_own(const std::string& host, uint16_t port) {
    auto started = start_local_reducer(options_, identity_, host, port);
    if (!started) return tl::unexpected(started.error());
    own_ = std::move(*started);
    return {};
  }
  Result<void> exchange_infos() {
    if (meets_at_own_reducer_) {
      const config::Endpoint& at = meeting_point();
      // A host may know itself by a name that others resolve differently.
      const bool is_numeric = transport::tcp::is_numeric(at.host);
      if (auto started = start_own(is_numeric ? at.host : "", at.port); !started)
        return add_context("co-located reducer at SLUICE_RENDEZVOUS", started.error());
    }
    // Rank 0 may come as late as any rank.
    const Nanos timeout =
        pool_.empty() ? std::max(options_.connect_timeout, options_.join_timeout) : options_.connect_timeout;
    auto gather = GatherConnection::open(meeting_point(), identity_, pool_.empty(),
                                         limit_.until(monotonic_now() + timeout));
    if (!gather) return tl::unexpected(gather.error());
    gather_ = std::make_unique<GatherConnection>(std::move(*gather));
    PeerInfo info{.mode = options_.colocation.mode, .pool = pool_hash(), .host = gather_->local_address()};
    info.rdma = identity_.lanes.rdma_required ? 2 : identity_.lanes.rdma ? 1 : 0;
    info.link_rate = options_.colocation.link_rate;
    if (info.link_rate == 0) info.link_rate = gather_->link_rate();
    info.link_rate /= options_.colocation.rails;
    if (!own_) {
      if (auto started = start_own(info.host, 0); !started) {
        log_.warn("no co-located reducer on this rank: " + started.error().text);
        info.reason = started.error().text;
      }
    }
    if (own_) info.reducer = own_->id(), info.port = own_->port();
    auto all = gather_->gather_messages(1, info, join_timeout());
    if (!all) {
      Error error = all.error();
      // Ranks with other settings wait elsewhere.
      if (error.code == Errc::kJoinTimeout)
        error.text += "; all ranks must list the same reducers and have the same SLUICE_COLOCATED";
      return tl::unexpected(std::move(error));
    }
    infos_ = std::move(*all);
    return {};
  }
  Result<void> check_infos() {
    for (size_t rank = 0; rank < infos_.size(); ++rank) {
      PeerInfo& info = infos_[rank];
      info.reason = replace_control_characters(std::move(info.reason));
      if (info.mode != infos_[0].mode) {
        return fail(Errc::kMismatch, rank_name(rank) + " has SLUICE_COLOCATED=" + to_string(info.mode) +
                                         ", rank 0 has " + to_string(infos_[0].mode));
      }
      if (info.pool != infos_[0].pool)
        return fail(Errc::kMismatch, rank_name(rank) + " and rank 0 list different reducers");
      if (info.link_rate != 0 && !wire::is_link_rate(info.link_rate)) {
        return fail(Errc::kBadField, rank_name(rank) + " has a link rate of " +
                                         std::to_string(info.link_rate) + " bit/s; expected " +
                                         std::to_string(wire::kMinLinkRate) + " to " +
                                         std::to_string(wire::kMaxLinkRate));
      }
      if (info.reducer == 0) continue;
      const auto address = config::parse_endpoints(config::to_string({.host = info.host, .port = info.port}));
      if (!address || address->size() != 1)
        return fail(Errc::kBadField, rank_name(rank) + " has no valid address of its co-located reducer");
    }
    return {};
  }
  // Co-located reducers serve lanes over TCP and memory only.
  Result<void> check_rdma() const {
    const auto requiring = std::ranges::find(infos_, 2, &PeerInfo::rdma);
    if (requiring == infos_.end() || (!pool_.empty() && infos_[0].mode == ColocationMode::kAuto)) return {};
    return fail(Errc::kUnsupported,
                rank_name(static_cast<size_t>(requiring - infos_.begin())) +
                    " requires RDMA, which co-located reducers do not use; set SLUICE_COLOCATED=off");
  }
  // A pool over RDMA is faster than its links' share over TCP.
  [[nodiscard]] bool prefers_rdma() const {
    return !pool_.empty() && infos_[0].mode == ColocationMode::kAuto &&
           std::ranges::any_of(infos_, [](const PeerInfo& info) { return info.rdma != 0; });
  }
  // A view has room for so many reducers.
  void limit_reducers() {
    const size_t room = wire::kMaxReducers - std::min<size_t>(pool_.size(), wire::kMaxReducers);
    if (result_.reducers.size() > room) result_.reducers.resize(room);
  }
  [[nodiscard]] LinkSplit split() const {
    LinkRates rates;
    for (const uint64_t rate : result_.worker_rates) rates.workers.push_back(static_cast<double>(rate));
    rates.can_reduce.resize(rates.workers.size());
    for (const Colocation::Reducer& r : result_.reducers) rates.can_reduce[r.rank] = true;
    for (size_t i = 0; i < pool_.size(); ++i) {
      rates.reducers.push_back(static_cast<double>(
          assume_reducer_rate(pool_[i].welcome.link_rate.value_or(0) / options_.colocation.rails,
                              options_.reducers[i].weight, result_.worker_rates)));
    }
    return split_links(rates);
  }
  [[nodiscard]] bool pays() const {
    if (result_.reducers.empty()) return false;
    if (infos_[0].mode == ColocationMode::kAlways) return true;
    return std::ranges::any_of(split().worker_shares, [](double share) { return share > 0; });
  }

  // The second GATHER: a bit for each rank whose reducer this rank cannot reach.
  Result<void> exclude_unreachable() {
    std::vector<uint8_t> unreachable((infos_.size() + 7) / 8);
    result_.handshakes_began = monotonic_now();
    const Nanos deadline = limit_.until(result_.handshakes_began + options_.connect_timeout).time;
    auto left = static_cast<Nanos>(result_.reducers.size());
    for (const Colocation::Reducer& r : result_.reducers) {
      // The hosts that do not answer must leave time for the others.
      const Nanos now = monotonic_now();
      const Nanos share = std::max(kLeastProbeTimeout, (deadline - now) / left--);
      auto reached = probe(r, {now + std::min(kProbeTimeout, share), limit_.interrupt_fd});
      if (reached) {
        result_.handshakes.push_back(std::move(*reached));
      } else {
        log_.warn("co-located reducer of " + rank_name(r.rank) + " gets no share: " + reached.error().text);
        unreachable[r.rank / 8] |= static_cast<uint8_t>(1U << r.rank % 8);
      }
    }
    auto all = gather_->gather(2, std::move(unreachable), join_timeout());
    if (!all) return tl::unexpected(all.error());
    for (size_t from = 0; from < all->size(); ++from) {
      const std::vector<uint8_t>& bits = (*all)[from];
      if (bits.size() != (infos_.size() + 7) / 8)
        return fail(Errc::kBadLength, rank_name(from) + ": malformed data");
      std::erase_if(result_.reducers, [&](const Colocation::Reducer& r) {
        const bool excluded = (bits[r.rank / 8] >> r.rank % 8 & 1) != 0;
        if (excluded && (r.rank == identity_.rank || identity_.rank == 0) && from != identity_.rank) {
          log_.warn("co-located reducer of " + rank_name(r.rank) + " (" + config::to_string(r.address) +
                    ") gets no share: " + rank_name(from) + " cannot reach it");
        }
        return excluded;
      });
    }
    // The handshakes with reducers that another rank cannot reach.
    std::erase_if(result_.handshakes, [this](const Handshake& g) {
      return std::ranges::find(result_.reducers, g.welcome.reducer, &Colocation::Reducer::id) ==
             result_.reducers.end();
    });
    return {};
  }
  Result<Handshake> probe(const Colocation::Reducer& reducer, const Deadline& deadline) const {
    auto socket = connect_once(reducer.address, identity_, deadline);
    if (!socket) return tl::unexpected(socket.error());
    auto handshake = perform_handshake(std::move(*socket), reducer.address, reducer_name(reducer.address),
                                       identity_, wire::Purpose::kControl, 0, 0, deadline);
    if (!handshake) return tl::unexpected(handshake.error());
    if (handshake->welcome.reducer != reducer.id) return tl::unexpected(replaced_process_error(*handshake));
    return handshake;
  }

  [[nodiscard]] Nanos join_timeout() const {
    return std::clamp<Nanos>(limit_.time - monotonic_now(), 0, options_.join_timeout);
  }
  [[nodiscard]] std::string reasons() const {
    for (size_t rank = 0; rank < infos_.size(); ++rank) {
      if (!infos_[rank].reason.empty()) return "; " + rank_name(rank) + ": " + infos_[rank].reason;
    }
    return {};
  }
  void log_split() const {
    if (identity_.rank != 0) return;
    const LinkSplit s = split();
    double share = 0;
    for (const double x : s.worker_shares) share += x;
    log_.info(std::to_string(pool_.size()) + " dedicated and " + std::to_string(result_.reducers.size()) +
              " co-located reducers; the co-located ones sum " + std::to_string(std::lround(100 * share)) +
              " %");
  }

  const JoinOptions& options_;
  const JoinLimit& limit_;
  const Identity& identity_;
  const std::span<const Handshake> pool_;
  const SessionLog log_;
  const bool meets_at_own_reducer_;
  std::unique_ptr<colocated::LocalReducer> own_;
  std::unique_ptr<GatherConnection> gather_;
  std::vector<PeerInfo> infos_;  // by rank
  Colocation result_;
};

}  // namespace

Result<std::unique_ptr<colocated::LocalReducer>> start_local_reducer(const JoinOptions& options,
                                                                     const Identity& identity,
                                                                     const std::string& host, uint16_t port,
                                                                     bool holds_memory) {
  const ColocationOptions& colocation = options.colocation;
  if (!colocation.start_reducer) return fail(Errc::kUnsupported, "this program cannot host a reducer");
  if (identity.tls && (!identity.token || identity.tls->context->has_ca()))
    return fail(Errc::kUnsupported, "TLS between workers needs the token of the job instead of certificates");
  return colocation.start_reducer({.host = host,
                                   .port = port,
                                   .session = identity.session,
                                   .job = identity.job,
                                   .token = identity.token,
                                   .tls = identity.tls != nullptr,
                                   .ranks = identity.ranks,
                                   .holds_memory = holds_memory,
                                   .window_bytes = options.window_bytes,
                                   .slot_bytes = options.slot_bytes,
                                   .link_rate = colocation.link_rate,
                                   .join_timeout = options.join_timeout});
}

bool needs_colocation_agreement(const JoinOptions& options, std::span<const Handshake> pool) {
  // An older reducer does not serve the exchange. All ranks see the same WELCOMEs.
  const auto supports_gather = [](const Handshake& g) {
    return (g.welcome.features & wire::kFeatureGather) != 0;
  };
  if (!options.colocation.start_reducer || !std::ranges::all_of(pool, supports_gather)) return false;
  switch (options.colocation.mode) {
    case ColocationMode::kOff: return false;
    case ColocationMode::kAlways: return true;
    case ColocationMode::kAuto: break;
  }
  if (pool.empty()) return true;
  if (options.identity.ranks <= 2 || config::is_loopback(options.reducers.front())) return false;
  const bool rates_known =
      std::ranges::any_of(pool, [](const Handshake& g) { return g.welcome.link_rate.value_or(0) != 0; });
  return pool.size() < options.identity.ranks || rates_known;
}

std::vector<uint64_t> assume_worker_rates(std::span<const PeerInfo> ranks) {
  uint64_t lowest = 0;
  for (const PeerInfo& info : ranks) {
    if (info.link_rate != 0 && (lowest == 0 || info.link_rate < lowest)) lowest = info.link_rate;
  }
  if (lowest == 0) lowest = kUnknownRate;
  std::vector<uint64_t> rates;
  for (const PeerInfo& info : ranks) rates.push_back(info.link_rate != 0 ? info.link_rate : lowest);
  return rates;
}

uint64_t assume_reducer_rate(uint64_t announced, uint16_t weight, std::span<const uint64_t> worker_rates) {
  const uint64_t rate = announced != 0 ? announced : std::ranges::max(worker_rates) * weight;
  return std::clamp(rate, wire::kMinLinkRate, wire::kMaxLinkRate);
}

Result<Colocation> agree_colocation(const JoinOptions& options, const JoinLimit& limit,
                                    const Identity& identity, std::span<const Handshake> pool) {
  return Negotiation(options, limit, identity, pool).run();
}

}  // namespace sluice::engine
