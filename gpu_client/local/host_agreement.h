// Class HostAgreement makes all ranks of a session agree on which of them share a host, before any of them
// joins. It uses GATHER at the dedicated reducer with the least id, or without one at rank 0's reducer
// (protocol.md section 5, rounds 0, 3 and 4). Without dedicated reducers, it also finds a meeting point for
// each rail: a reducer in the process of the rail's first member.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "gpu_client/engine/join/gather.h"
#include "gpu_client/engine/join/join.h"
#include "gpu_client/engine/session/session.h"
#include "gpu_client/local/topology.h"

namespace sluice::local {

// SLUICE_HOST_ID, or nothing.
[[nodiscard]] std::string this_host_name();

// What a rank tells the others in round 0. Ranks with equal `host` can share memory.
struct HostInfo {
  static constexpr bool kMayGrow = true;
  std::array<uint8_t, 16> host{}, machine{};  // machine: zero if unknown
  std::string name{};                         // SLUICE_HOST_ID
  std::string address{};                      // of this rank, for messages
  uint16_t port = 0;                          // of its reducer, without dedicated ones; 0: it has none
  uint8_t device_memory = 0;                  // 1: its network cards shall access its GPU's memory
  uint8_t exact = 0;                          // 1: HostSharing::kExact
  static void visit(auto& m, auto& v) {
    v(m.host), v(m.machine), v.text(m.name, kMaxHostName), v.text(m.address, 46), v(m.port),
        v(m.device_memory);
    v(m.exact);
  }
};

class HostAgreement {
 public:
  // Blocks until all ranks have called it, with the join timeout. `options` outlives the object. It and that
  // of connections together are the deadline of the whole session's creation. Where a reducer is of a release
  // without GATHER, each rank is a host of its own. Errors: those of the handshakes, of GATHER and of rank
  // 0's reducer; kMismatch for ranks of different machines with the same SLUICE_HOST_ID, with both addresses,
  // and for ranks of which only some ask for exact sums.
  [[nodiscard]] static Result<HostAgreement> reach(const engine::SessionOptions& options);

  [[nodiscard]] const Topology& topology() const noexcept { return topology_; }
  [[nodiscard]] Nanos deadline() const noexcept { return deadline_; }
  [[nodiscard]] Nanos time_left() const noexcept;  // at most the join timeout
  // Whether the ranks of each host shall share its memory: the same on all ranks.
  [[nodiscard]] bool shares_memory() const;

  // Tells the other hosts whether the ranks of this one share memory now and rails have memory at this rank's
  // reducer, and blocks until all have told. On false, something was refused somewhere, which rank 0 has
  // logged: then no host shares memory. Errors: that of this rank, if it is about the ranks and not about its
  // host, which the others are told; those of GATHER.
  [[nodiscard]] Result<bool> conclude(const Result<void>& met);

  // Tells the other ranks, on all hosts, that this one has joined its rails, and blocks until all have. Then
  // it succeeds on all ranks, whatever they do next. Errors: those of GATHER.
  [[nodiscard]] Result<void> confirm();

  // Until the session begins, each rank learns at once of the end of another one. Readable if one has ended;
  // why_ended() then says why.
  static constexpr Nanos kReasonTime = 300 * kMillisecond;  // a first consequence may be seen so much sooner
  [[nodiscard]] int end_fd() const { return gather_->fd(); }
  [[nodiscard]] Error why_ended() { return gather_->why_ended(); }
  // Tells the other ranks, on all hosts, why this one ends. No other call may follow.
  void give_up(const Error& cause) { gather_->abort(cause); }

  // Where the members of a rail meet without dedicated reducers: as this rank reaches it, so not the same
  // text on all ranks. While this object lives, the rail's first member has a reducer there, which serves the
  // rail from its join on.
  [[nodiscard]] config::Endpoint rail_meeting_point(uint32_t rail) const;

  // Gives the place at this rank's reducer to the session that `options` will join instead: other ranks may
  // still be about to read what they got there.
  void hand_over_reducer(engine::JoinOptions& options);

 private:
  explicit HostAgreement(const engine::JoinOptions& options, Topology topology)
      : options_(&options), topology_(std::move(topology)) {}
  [[nodiscard]] Rank first_member(uint32_t rail) const {
    return topology_.ranks_of[0][topology_.server_of(rail, 0)];
  }
  [[nodiscard]] bool wants_shared_memory() const;
  [[nodiscard]] std::optional<Rank> first_member_without_reducer() const;
  [[nodiscard]] Result<void> reserve_rails();
  void log_obstacle() const;
  [[nodiscard]] bool was_left(Errc code) const;
  void log_hosts() const;

  const engine::JoinOptions* options_;  // outlives the object
  Nanos deadline_ = 0;
  Topology topology_;
  std::vector<HostInfo> infos_;                       // by rank; empty if no rank was asked
  std::unique_ptr<colocated::LocalReducer> reducer_;  // of this rank; null with dedicated reducers
  // Where this rank reached rank 0. The first members of all rails are on that host, and listen there too.
  std::string rank_0_address_;
  std::unique_ptr<engine::GatherConnection> gather_;
};

}  // namespace sluice::local
