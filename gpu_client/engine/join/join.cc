#include "gpu_client/engine/join/join.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/clock.h"
#include "gpu_client/engine/base/session_log.h"
#include "gpu_client/engine/join/colocation_agreement.h"
#include "gpu_client/engine/join/join_vote.h"
#include "gpu_client/engine/join/reducer_reservation.h"

namespace sluice::engine {
namespace {

// How long a handshake may wait for the next request: well below a reducer's handshake deadline.
constexpr Nanos kHandshakeFreshness = 1500 * kMillisecond;
constexpr size_t kMaxNamedReducers = 8;  // in an error

bool is_fault_tolerant(const Handshake& g) {
  return (g.welcome.features & wire::kFaultToleranceFeatures) == wire::kFaultToleranceFeatures;
}

bool sums_as_tree(const Handshake& g) {
  return (g.welcome.features & wire::kFeatureTreeOrder) != 0;
}

// JOIN with `lanes` lane connections to the reducer with this index in the view.
wire::Join make_join(Nanos timeout, const wire::View& view, uint16_t lanes, size_t index) {
  wire::Join join;
  join.view_hash = wire::view_hash(view);
  join.window_bytes = view.window_bytes;
  join.slot_bytes = view.slot_bytes;
  join.lanes = lanes;
  join.reducer_index = static_cast<uint16_t>(index);
  join.join_timeout_ms = static_cast<uint32_t>(timeout / kMillisecond);
  for (const wire::ViewReducer& r : view.reducers) join.reducers.push_back(r.id);
  return join;
}

bool lacks_descriptors() {
  const transport::tcp::Socket one(::eventfd(0, EFD_CLOEXEC));
  return !one.valid() && errno == EMFILE;
}

class JoinProcedure {
 public:
  JoinProcedure(const JoinOptions& options, const JoinLimit& limit)
      : options_(options),
        limit_(limit),
        identity_(options.identity),
        reducers_(options.reducers),
        own_failure_(limit.own_failure) {}

  Result<Membership> run() {
    auto done = handshake_all();
    if (!done && limit_.free_descriptors && lacks_descriptors()) {
      own_failure_ = done.error();
      limit_.free_descriptors();
      if (handshake_all()) done = Result<void>();
    }
    if (done && needs_colocation_agreement(options_, handshakes_)) done = agree_on_colocation();
    if (done) done = compute_view();
    if (done) done = reserve_all();
    if (done) done = attach_all();
    if (done) log_lane_transports();
    if (done) done = vote();
    if (!done && done.error().code == Errc::kShutdown && limit_.reason)
      done = tl::unexpected(limit_.reason());
    if (!done) {
      Error error = add_own_list(notify_failure(std::move(done.error())), options_.reducers);
      handshakes_.clear();  // before the own reducer, for the same reason as in Membership
      colocation_.handshakes.clear();
      return tl::unexpected(std::move(error));
    }
    return std::move(membership_);
  }

 private:
  // `reached`: handshakes with the last reducers of the list that have been made since `began`.
  Result<void> handshake_all(std::vector<Handshake> reached = {}, Nanos began = monotonic_now()) {
    const Deadline deadline = limit_.until(monotonic_now() + options_.connect_timeout);
    for (;; began = monotonic_now()) {
      handshakes_.clear();
      const size_t missing = reducers_.size() - reached.size();
      for (size_t i = 0; i < reducers_.size(); ++i) {
        if (i >= missing) reached[i - missing].name = name(i);
        auto g = i < missing ? connect_and_handshake(reducers_[i], name(i), identity_,
                                                     wire::Purpose::kControl, 0, deadline)
                             : Result<Handshake>(std::move(reached[i - missing]));
        if (!g) return tl::unexpected(g.error());
        if (auto checked = check_capacity(*g, options_.slot_bytes); !checked) return checked;
        if (auto checked = check_distinct(*g); !checked) return checked;
        handshakes_.push_back(std::move(*g));
      }
      reached.clear();
      if (drop_unsupported_features()) continue;
      // A reducer closes a connection that stays idle after WELCOME. If one reducer started late, the
      // handshakes with the others may be too old, and all are made again.
      const Nanos now = monotonic_now();
      if (now - began < kHandshakeFreshness || now - began >= deadline.time - now) return {};
    }
  }
  // A reducer without fault tolerance makes the session non-fault-tolerant, and one of a release before the
  // tree order makes it sum in groups. Returns whether HELLO must be sent again without a feature. The other
  // ranks receive the same answers and decide the same.
  bool drop_unsupported_features() {
    const wire::SumOrder order_before = identity_.order;
    const bool was_fault_tolerant = identity_.fault_tolerant;
    if (was_fault_tolerant) identity_.fault_tolerant = std::ranges::all_of(handshakes_, is_fault_tolerant);
    if (order_before == wire::SumOrder::kTree) {
      const auto earlier = std::ranges::find_if_not(handshakes_, sums_as_tree);
      if (earlier != handshakes_.end()) {
        identity_.order = wire::SumOrder::kGroups;
        if (identity_.rank == 0)
          identity_.log().info("sums have the order of earlier releases, because " + earlier->name +
                               " is of one");
      }
    }
    return identity_.fault_tolerant != was_fault_tolerant || identity_.order != order_before;
  }
  // The name of a reducer in messages. A co-located one is lost with its rank, so its rank says more than its
  // address.
  [[nodiscard]] std::string name(size_t i) const {
    const size_t dedicated = options_.reducers.size();
    if (i < dedicated) return reducer_name(reducers_[i]);
    return "reducer of rank " + std::to_string(colocation_.reducers[i - dedicated].rank) + " (" +
           config::to_string(reducers_[i]) + ")";
  }
  // Then handshakes with the dedicated reducers again, because those have waited for all ranks. Those with
  // the co-located ones are reused: a rank whose join fails ends its reducer, and the others must come as far
  // as the arbiter, which tells them why.
  Result<void> agree_on_colocation() {
    auto agreed = agree_colocation(options_, limit_, identity_, handshakes_);
    if (!agreed) return tl::unexpected(agreed.error());
    colocation_ = std::move(*agreed);
    for (const Colocation::Reducer& r : colocation_.reducers) reducers_.push_back(r.address);
    membership_.local_reducer = std::move(colocation_.own);
    const Nanos began = colocation_.handshakes_began;
    if (monotonic_now() - began >= kHandshakeFreshness) return handshake_all();
    return handshake_all(std::move(colocation_.handshakes), began);
  }
  Result<void> check_distinct(const Handshake& g) const {
    for (const Handshake& other : handshakes_) {
      if (other.welcome.reducer == g.welcome.reducer) {
        return fail(Errc::kInvalidArgument,
                    g.name + " is the same process as " + other.name + "; list each reducer once");
      }
    }
    return {};
  }
  // The slot size that every rank computes by itself when the user asked for none.
  [[nodiscard]] uint32_t default_slot_bytes() const noexcept {
    uint32_t bytes =
        std::min(wire::default_slot_bytes(membership_.view, identity_.ranks, options_.colocation.rails),
                 options_.window_bytes);
    for (const Handshake& g : handshakes_) bytes = std::min(bytes, g.welcome.max_slot_bytes);
    return static_cast<uint32_t>(bytes / kCacheLine * kCacheLine);
  }
  Result<void> compute_view() {
    wire::View& view = membership_.view;
    view.window_bytes = options_.window_bytes;
    uint64_t weights = 0;
    uint64_t most_lanes = 0;
    for (size_t i = 0; i < handshakes_.size(); ++i) {
      const uint16_t lanes = choose_lane_count(options_.lanes, handshakes_[i].welcome.lanes);
      view.reducers.push_back({.id = handshakes_[i].welcome.reducer,
                               .lanes = lanes,
                               .weight = reducers_[i].weight,
                               .alive = true});
      weights += reducers_[i].weight;
      most_lanes = std::max<uint64_t>(most_lanes, lanes);
    }
    add_rates();
    view.slot_bytes = options_.slot_bytes != 0 ? options_.slot_bytes : default_slot_bytes();
    for (const wire::ViewReducer& r : view.reducers) {
      const uint32_t slots = wire::slots_per_lane(view.window_bytes, view.slot_bytes, r.lanes);
      if (slots > wire::kMaxSlots) {
        return fail(Errc::kInvalidArgument, "window_bytes / slot_bytes gives " + std::to_string(slots) +
                                                " slots per lane connection, more than the maximum of " +
                                                std::to_string(wire::kMaxSlots) +
                                                "; raise slot_bytes or lower window_bytes");
      }
    }
    if (weights * most_lanes > wire::kMaxPlacement) {
      return fail(Errc::kInvalidArgument, "sum of the reducers' weights (" + std::to_string(weights) +
                                              ") times lanes (" + std::to_string(most_lanes) +
                                              ") exceeds the maximum of " +
                                              std::to_string(wire::kMaxPlacement) + "; use smaller weights");
    }
    membership_.view_hash = wire::view_hash(view);
    membership_.fault_tolerant = identity_.fault_tolerant;
    membership_.order = identity_.order;
    return {};
  }
  void add_rates() {
    if (colocation_.reducers.empty()) return;
    wire::View& view = membership_.view;
    const size_t dedicated = options_.reducers.size();
    view.worker_rates = colocation_.worker_rates;
    for (size_t i = 0; i < dedicated; ++i) {
      view.reducers[i].rate =
          assume_reducer_rate(handshakes_[i].welcome.link_rate.value_or(0) / options_.colocation.rails,
                              reducers_[i].weight, view.worker_rates);
    }
    for (size_t i = dedicated; i < view.reducers.size(); ++i)
      view.reducers[i].host_rank = colocation_.reducers[i - dedicated].rank;
  }
  Result<void> reserve_all() {
    join_deadline_ = limit_.until(monotonic_now() + options_.join_timeout).time;
    // The arbiter first: only the arbiter can tell the other ranks that a later reducer has refused.
    for (size_t i = 0; i < handshakes_.size(); ++i) {
      auto reservation = reserve_one(i);
      if (!reservation) {
        // If the arbiter has refused another rank, that rank has left the other reducers, and they report it
        // as lost. The arbiter's refusal arrived before and names the cause.
        if (auto checked = check_for_refusal(membership_.reservations); !checked) return checked;
        return tl::unexpected(reservation.error());
      }
      reservation->same_process = membership_.view.reducers[i].host_rank == identity_.rank;
      membership_.reservations.push_back(std::move(*reservation));
      if (own_failure_) return tl::unexpected(*own_failure_);  // the arbiter tells the others
    }
    return {};
  }
  Result<ReducerReservation> reserve_one(size_t i) {
    const wire::View& view = membership_.view;
    const Nanos timeout = std::max(join_deadline_ - monotonic_now(), kMillisecond);
    return reserve(handshakes_[i], reducers_[i], make_join(timeout, view, view.reducers[i].lanes, i),
                   limit_.until(std::min(join_deadline_, monotonic_now() + options_.connect_timeout)));
  }
  Result<void> attach_all() {
    for (size_t i = 0; i < membership_.reservations.size(); ++i) {
      for (uint32_t lane = 0; lane < membership_.view.reducers[i].lanes; ++lane) {
        auto attached = attach_lane(i, lane);
        if (attached) continue;
        // A session that ended because another rank was refused is unknown to the reducer here. See
        // reserve_all().
        if (auto checked = check_for_refusal(membership_.reservations); !checked) return checked;
        return attached;
      }
    }
    return {};
  }
  Result<void> attach_lane(size_t i, uint32_t lane) {
    ReducerReservation& reservation = membership_.reservations[i];
    const Deadline deadline =
        limit_.until(std::min(join_deadline_, monotonic_now() + options_.connect_timeout));
    Identity identity = identity_;
    identity.lanes.same_process = reservation.same_process;
    auto g = connect_and_handshake(reducers_[i], name(i), identity, wire::Purpose::kLane, lane, deadline);
    if (!g) return tl::unexpected(g.error());
    const wire::View& view = membership_.view;
    reservation.slots = wire::slots_per_lane(view.window_bytes, view.slot_bytes, view.reducers[i].lanes);
    auto attached = attach(*g, identity,
                           {.reducer = reservation.id,
                            .handle = reservation.handle,
                            .view_hash = membership_.view_hash,
                            .slots = reservation.slots},
                           deadline);
    if (!attached) return attached;
    if (g->socket.has_queue_pair()) ++rdma_lanes_;
    if (tcp_reason_.empty() && !g->tcp_reason.empty())
      tcp_reason_ = (identity_.lanes.rdma ? g->name + ": " : "") + g->tcp_reason;
    reservation.lanes.push_back(std::move(g->socket));
    return {};
  }
  // Logs nothing when TCP was selected. Only rank 0 logs that the host has no RDMA device.
  void log_lane_transports() const {
    size_t all = 0;
    for (const ReducerReservation& reservation : membership_.reservations) all += reservation.lanes.size();
    if ((rdma_lanes_ == 0 && tcp_reason_.empty()) || (!identity_.lanes.rdma && identity_.rank != 0)) return;
    const size_t tcp_lanes = all - rdma_lanes_;
    const std::string transports = tcp_lanes == 0     ? "RDMA"
                                   : rdma_lanes_ == 0 ? "TCP"
                                                      : "RDMA, " + std::to_string(tcp_lanes) + " of " +
                                                            std::to_string(all) + " over TCP";
    identity_.log().info("lane connections over " + transports +
                         (tcp_reason_.empty() ? "" : ": " + tcp_reason_));
  }
  Result<void> vote() {
    wire::Vote vote;
    vote.yes = 1;
    vote.reason.code = Errc::kOk;
    voted_ = true;
    if (!membership_.reservations[0].control.send(vote).ok()) {
      // The reducer's reason for closing the connection may have been received.
      if (auto checked = check_for_refusal(membership_.reservations); !checked) return checked;
    }
    auto incarnation = await_verdict(membership_.reservations, reducers_[0], identity_,
                                     limit_.until(join_deadline_ + kVerdictGrace));
    if (!incarnation) return tl::unexpected(incarnation.error());
    membership_.incarnation = *incarnation;
    wire::Commit commit;
    commit.incarnation = *incarnation;
    for (ReducerReservation& reservation : membership_.reservations) {
      if (!reservation.control.send(commit).ok())
        return fail(Errc::kReducerLost, reservation.name + ": control connection lost while sending COMMIT");
    }
    return {};
  }
  Error notify_failure(Error cause) {
    if (membership_.reservations.empty()) return cause;
    if (voted_) {
      abort_all(membership_.reservations, identity_.rank, cause);
    } else {
      vote_no(membership_.reservations[0], identity_.rank, cause);
    }
    return cause;
  }

  const JoinOptions& options_;
  const JoinLimit& limit_;
  Identity identity_;
  std::vector<config::Endpoint> reducers_;  // in the order of the view: dedicated, then co-located
  std::optional<Error> own_failure_;        // JoinLimit::own_failure
  Colocation colocation_;
  std::vector<Handshake> handshakes_;  // in the order of the view; their sockets move into the reservations
  Nanos join_deadline_ = 0;
  bool voted_ = false;
  size_t rdma_lanes_ = 0;   // lane connections that use RDMA
  std::string tcp_reason_;  // why the first lane connection without RDMA uses TCP
  Membership membership_;
};

}  // namespace

Error add_own_list(Error error, const std::vector<config::Endpoint>& reducers) {
  const bool is_named = error.code == Errc::kJoinTimeout || error.code == Errc::kMismatch;
  if (!is_named || reducers.empty()) return error;
  error.text += error.code == Errc::kJoinTimeout
                    ? "; if they run, their list of reducers may differ from this rank's: "
                    : "; this rank's list of reducers: ";
  const size_t named = std::min(reducers.size(), kMaxNamedReducers);
  for (size_t i = 0; i < named; ++i) error.text += (i == 0 ? "" : ", ") + config::to_string(reducers[i]);
  if (named < reducers.size()) error.text += " and " + std::to_string(reducers.size() - named) + " more";
  return error;
}

Result<Membership> join_session(const JoinOptions& options, const JoinLimit& limit) {
  return JoinProcedure(options, limit).run();
}

Result<ReducerReservation> join_added_reducer(const JoinOptions& options, const wire::View& first_view,
                                              uint64_t incarnation, const config::Endpoint& address,
                                              uint64_t reducer_id, const Deadline& deadline) {
  const std::string name = reducer_name(address);
  if (first_view.reducers.size() >= wire::kMaxReducers)
    return fail(Errc::kTooMany, name + ": the session already has the maximum of " +
                                    std::to_string(wire::kMaxReducers) + " reducers");
  const auto open = [&](wire::Purpose purpose, uint32_t lane) -> Result<Handshake> {
    auto socket = connect_once(address, options.identity, deadline);
    if (!socket) return add_context(name, socket.error());
    auto g = perform_handshake(std::move(*socket), address, name, options.identity, purpose, lane,
                               incarnation, deadline);
    if (g && g->welcome.reducer != reducer_id) return tl::unexpected(replaced_process_error(*g));
    return g;
  };
  auto g = open(wire::Purpose::kControl, 0);
  if (!g) return tl::unexpected(g.error());
  if (auto checked = check_capacity(*g, first_view.slot_bytes); !checked)
    return tl::unexpected(checked.error());
  if (!is_fault_tolerant(*g))
    return fail(Errc::kUnsupported, name + ": does not support fault-tolerant sessions");
  if (options.identity.order == wire::SumOrder::kTree && !sums_as_tree(*g))
    return fail(Errc::kUnsupported,
                name + ": is of an earlier release, which cannot sum in the order of this session");

  wire::Join join = make_join(options.join_timeout, first_view,
                              choose_lane_count(options.lanes, g->welcome.lanes), first_view.reducers.size());
  join.reducers.push_back(reducer_id);
  auto reservation = reserve(*g, address, join, deadline);
  if (!reservation) return reservation;

  reservation->slots = wire::slots_per_lane(first_view.window_bytes, first_view.slot_bytes, join.lanes);
  const AttachParameters parameters{.reducer = reducer_id,
                                    .handle = reservation->handle,
                                    .view_hash = join.view_hash,
                                    .slots = reservation->slots};
  for (uint32_t lane = 0; lane < join.lanes; ++lane) {
    auto handshake = open(wire::Purpose::kLane, lane);
    if (!handshake) return tl::unexpected(handshake.error());
    if (auto done = attach(*handshake, options.identity, parameters, deadline); !done)
      return tl::unexpected(done.error());
    log_lane_transport(*handshake, options.identity);
    reservation->lanes.push_back(std::move(handshake->socket));
  }
  return reservation;
}

}  // namespace sluice::engine
