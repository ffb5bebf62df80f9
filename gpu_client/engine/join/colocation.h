// Types with which a session uses co-located reducers: reducers in the processes of its workers
// (docs/design/adr/0019-co-located-reducers.md). The engine does not link the reducer; the library that links
// both gives it a LocalReducerFactory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "colocated/local_reducer.h"
#include "config/endpoints.h"
#include "core/result.h"
#include "core/units.h"
#include "gpu_client/engine/join/handshake.h"

namespace sluice::engine {

// kAuto: co-located reducers join a session where they shorten its allreduces. kAlways: they join every
// session of the job, and take over when no dedicated reducer is left.
enum class ColocationMode : uint8_t { kAuto, kOff, kAlways };

// "auto", "off" or "always". Errors: kInvalidArgument.
[[nodiscard]] Result<ColocationMode> parse_colocation_mode(const std::string& text);
[[nodiscard]] const char* to_string(ColocationMode mode) noexcept;

struct ColocationOptions {
  ColocationMode mode = ColocationMode::kOff;
  uint64_t link_rate = 0;  // bits/s of this rank's link, each way; 0: the interface's speed
  uint32_t rails = 1;      // sessions that share the links of ranks and reducers evenly
  // Where rank 0's reducer listens when no dedicated reducer exists; the ranks meet there. No host: unset.
  config::Endpoint rendezvous{};
  colocated::LocalReducerFactory start_reducer;  // empty: this process cannot host one
};

// The co-located reducers of a session, and the rates of the ranks' links, as all ranks have agreed on them.
struct Colocation {
  struct Reducer {
    config::Endpoint address;
    uint64_t id = 0;
    uint32_t rank = 0;  // in whose process it runs
  };
  std::vector<Reducer> reducers;                 // ascending by rank; empty: the session uses none
  std::vector<uint64_t> worker_rates;            // bits/s, by rank; empty if `reducers` is
  std::unique_ptr<colocated::LocalReducer> own;  // null: this rank hosts none
  std::vector<Handshake> handshakes;  // with `reducers`, in their order, made since `handshakes_began`
  Nanos handshakes_began = 0;
};

}  // namespace sluice::engine
