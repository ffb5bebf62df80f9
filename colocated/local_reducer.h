// The interface between a session and the reducer of its process: the engine calls it, and hosted_reducer.h
// implements it with a reducer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/ids.h"
#include "core/result.h"
#include "core/units.h"
#include "wire/sha256.h"

namespace sluice::colocated {

struct LocalReducerRequest;

// Class LocalReducer is the place of one session at the reducer of this process, which the process's sessions
// of a job share. The reducer refuses every session without such a place. Destruction ends the place, and the
// reducer with the last one. Any thread.
class LocalReducer {
 public:
  virtual ~LocalReducer() = default;
  [[nodiscard]] virtual uint64_t id() const noexcept = 0;
  [[nodiscard]] virtual uint16_t port() const noexcept = 0;
  // Makes the place hold memory for so many sessions of the given ranks, window and slots, instead of what it
  // holds. Errors: kMemoryLimit, on which nothing changes.
  [[nodiscard]] virtual Result<void> reserve(const LocalReducerRequest& request, uint32_t sessions) = 0;
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
  // Of the session: for the connections that it may have, and the memory that it needs.
  uint32_t ranks = 0;
  bool holds_memory = true;  // otherwise none until reserve()
  uint32_t window_bytes = 2 * kMiB;
  uint32_t slot_bytes = 0;  // 0: the default for so many ranks
  uint64_t link_rate = 0;   // bits/s; 0: the interface's speed
  Nanos join_timeout = 60 * kSecond;
};
using LocalReducerFactory = std::function<Result<std::unique_ptr<LocalReducer>>(const LocalReducerRequest&)>;

}  // namespace sluice::colocated
