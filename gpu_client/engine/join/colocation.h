// Types with which a session uses co-located reducers: reducers in the processes of its workers
// (docs/design/adr/0019-co-located-reducers.md). The engine does not include the reducer; the library that
// links both gives it a LocalReducerFactory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/endpoints.h"
#include "core/ids.h"
#include "core/result.h"
#include "core/units.h"
#include "gpu_client/engine/join/handshake.h"
#include "wire/sha256.h"

namespace sluice::engine {

// kAuto: co-located reducers join a session where they shorten its allreduces. kAlways: they join every
// session of the job, and take over when no dedicated reducer is left.
enum class ColocationMode : uint8_t { kAuto, kOff, kAlways };

// "auto", "off" or "always". Errors: kInvalidArgument.
[[nodiscard]] Result<ColocationMode> parse_colocation_mode(const std::string& text);
[[nodiscard]] const char* to_string(ColocationMode mode) noexcept;

// Class LocalReducer is the place of one session at the reducer of this process, which the process's sessions
// of a job share. The reducer refuses every session without such a place. Destruction ends the place, and the
// reducer with the last one. Any thread.
class LocalReducer {
 public:
  virtual ~LocalReducer() = default;
  [[nodiscard]] virtual uint64_t id() const noexcept = 0;
  [[nodiscard]] virtual uint16_t port() const noexcept = 0;
  // Waits until every rank has left the session at this reducer, at most until `deadline`.
  virtual void wait_for_leave(Nanos deadline) noexcept = 0;
};

struct LocalReducerRequest {
  std::string host;   // the local address that the other ranks reach; empty: all addresses
  uint16_t port = 0;  // 0: chosen by the system
  SessionId session;
  std::string job;
  std::optional<wire::Digest> token;
  bool tls = false;  // with the token
  // Of the session, for the memory that it needs.
  uint32_t ranks = 0;
  uint32_t window_bytes = 2 * kMiB;
  uint32_t slot_bytes = 0;  // 0: the default for so many ranks
  uint64_t link_rate = 0;   // bits/s; 0: the interface's speed
  Nanos join_timeout = 60 * kSecond;
};
using LocalReducerFactory = std::function<Result<std::unique_ptr<LocalReducer>>(const LocalReducerRequest&)>;

struct ColocationOptions {
  ColocationMode mode = ColocationMode::kOff;
  uint64_t link_rate = 0;  // bits/s of this rank's link, each way; 0: the interface's speed
  // Where rank 0's reducer listens when no dedicated reducer exists; the ranks meet there. No host: unset.
  config::Endpoint rendezvous{};
  LocalReducerFactory start_reducer;  // empty: this process cannot host one
};

// The co-located reducers of a session, and the rates of the ranks' links, as all ranks have agreed on them.
struct Colocation {
  struct Reducer {
    config::Endpoint address;
    uint64_t id = 0;
    uint32_t rank = 0;  // in whose process it runs
  };
  std::vector<Reducer> reducers;       // ascending by rank; empty: the session uses none
  std::vector<uint64_t> worker_rates;  // bits/s, by rank; empty if `reducers` is
  std::unique_ptr<LocalReducer> own;   // null: this rank hosts none
  std::vector<Handshake> handshakes;   // with `reducers`, in their order, made since `handshakes_began`
  Nanos handshakes_began = 0;
};

}  // namespace sluice::engine
