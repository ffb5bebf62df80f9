// agree_colocation() makes all ranks agree on the co-located reducers of a session before they join: who
// hosts one and where it listens, how fast the ranks' links are, and which reducers every rank can reach.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "gpu_client/engine/join/colocation.h"
#include "gpu_client/engine/join/handshake.h"
#include "gpu_client/engine/join/join.h"
#include "wire/message_codec.h"

namespace sluice::engine {

// What a rank tells the others: the data of the first GATHER.
struct PeerInfo {
  static constexpr bool kMayGrow = true;
  ColocationMode mode = ColocationMode::kAuto;
  uint64_t link_rate = 0;  // bits/s; 0: unknown
  uint64_t reducer = 0;    // id of its co-located reducer; 0: none
  uint16_t port = 0;
  uint64_t pool = 0;     // hash of the dedicated reducers' ids in order
  uint8_t rdma = 0;      // 1: the rank uses RDMA where it can, 2: it requires RDMA
  std::string host{};    // numeric
  std::string reason{};  // why there is none
  static void visit(auto& m, auto& v) {
    v(m.mode), v(m.link_rate), v(m.reducer), v(m.port), v(m.pool), v(m.rdma), v.text(m.host, 46),
        v.text(m.reason, 128);
  }
};

// True when the ranks must call agree_colocation(). Depends only on what all ranks know, so all decide alike.
// False in mode kAuto where co-located reducers cannot pay: at most two ranks, as many reducers as ranks with
// unknown rates, or a pool on loopback, where no link limits the ranks.
[[nodiscard]] bool needs_colocation_agreement(const JoinOptions& options, std::span<const Handshake> pool);

// Starts this process's reducer for the session of `identity`. The window and the slot size in `options` say
// how much memory the session needs, which its place holds at once, or only after reserve(). Errors:
// kUnsupported, also for TLS without a token; those of the factory.
[[nodiscard]] Result<std::unique_ptr<colocated::LocalReducer>> start_local_reducer(const JoinOptions& options,
                                                                                   const Identity& identity,
                                                                                   const std::string& host,
                                                                                   uint16_t port,
                                                                                   bool holds_memory = true);

// The rates to use in place of unknown ones: the lowest known rate, or 1 Gbit/s where none is known.
[[nodiscard]] std::vector<uint64_t> assume_worker_rates(std::span<const PeerInfo> ranks);
// The rate of a dedicated reducer: from WELCOME, or else its weight times the fastest worker's rate.
[[nodiscard]] uint64_t assume_reducer_rate(uint64_t announced, uint16_t weight,
                                           std::span<const uint64_t> worker_rates);

// Blocks until all ranks have called it, with the join timeout. `pool`: the handshakes with the dedicated
// reducers, in the order of the list; may be empty. The result is equal on all ranks but for `own`, and has
// no reducers where they would not shorten an allreduce. Errors: kMismatch for ranks with different modes,
// kBadField for an impossible rate, both naming rank and value; kJoinTimeout; those of the handshake.
[[nodiscard]] Result<Colocation> agree_colocation(const JoinOptions& options, const JoinLimit& limit,
                                                  const Identity& identity, std::span<const Handshake> pool);

}  // namespace sluice::engine
