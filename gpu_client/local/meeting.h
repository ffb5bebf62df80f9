// meet() brings together the ranks of a session that run on this host, and gives each of them the shared
// segment. The ranks meet at a Unix socket in the abstract namespace, whose name follows from the user, the
// session and the host's first rank. The first rank to bind it is the leader: it checks the others, and
// passes them the segment's descriptor when all have come.
//
//   rank                                 leader
//   HELLO rank, ranks, nonce       ->
//                                  <-    CHALLENGE nonce, proof
//   PROOF                          ->
//                                  <-    SEGMENT, with the descriptor, when all ranks have come
//   READY or an error              ->    (the rank's watch has begun: from now on its death is seen)
//                                  <-    VERDICT, the same for all
//
// Both proofs are HMACs of the job token over both nonces, zero without a token. Only processes of the same
// user are accepted. Abstract names belong to the network namespace, so containers meet if they share that.
#pragma once

#include <functional>
#include <string>

#include "core/result.h"
#include "core/units.h"
#include "gpu_client/engine/join/handshake.h"
#include "gpu_client/local/segment.h"
#include "gpu_client/local/topology.h"

namespace sluice::local {

struct MeetingPlan {
  const Topology& topology;
  Geometry geometry;
  Nanos timeout;
  // Equal on all ranks. Where no meeting point of several hosts is known, only this shows that they are
  // several.
  std::string host_name{};
  std::string remedy{};   // what ranks on several hosts need instead; for messages
  int interrupt_fd = -1;  // readable: the ranks need not meet any more
  // Where the ranks can do without meeting: whatever a leader says or does that has not proved the token is
  // kUnauthenticated or kJoinTimeout.
  bool may_fail = false;
};

// Blocks until all ranks of this host have come, at most for the timeout; succeeds or fails on all of them
// alike. `begin_watch` is called once with the mapped segment, before the others may rely on this rank.
// Errors: kShutdown when interrupted, kJoinTimeout with the ranks that are missing, kMismatch, kRankTaken,
// kUnauthenticated, kPeerLost, kSystem and kUnsupported of the segment or the watch, each with the rank that
// has it.
[[nodiscard]] Result<void> meet(const engine::Identity& identity, const MeetingPlan& plan,
                                const std::function<Result<void>(Segment)>& begin_watch);

}  // namespace sluice::local
