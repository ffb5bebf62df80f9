// Class GatherRegistry collects the data that the ranks of a session exchange before they join, and sends all
// of it to each of them (GATHER, protocol.md section 5).
//
// The reducer does not interpret the data and keeps it only until every rank has arrived. Memory is in
// proportion to the connections. Ranks that have finished a round together form a group: a rank that leaves
// it early is missed by the others, who are told at once. Control thread only.
//
// The reducer of a rank ends with that rank, and so with the first failure before the session. It remembers
// why it refused the session, for ranks that come later, and can tell when all ranks have learned it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/ids.h"
#include "core/result.h"
#include "core/units.h"
#include "wire/messages.h"

namespace sluice::reducer {

class Connection;

// The connections that have finished a round together.
struct GatherGroup {
  std::vector<std::weak_ptr<Connection>> members;
};

class GatherRegistry {
 public:
  // `longest_wait` bounds the timeout that ranks ask for. `remembers`: refusals, until forget().
  GatherRegistry(Nanos longest_wait, bool remembers) : longest_wait_(longest_wait), remembers_(remembers) {}

  // Keeps the data of the rank of `hello`, whose proof is valid. With the last rank's data all ranks get
  // GATHERED. If the rank contradicts the others, every rank that waits is refused with the same error.
  void add(Connection& from, const wire::Hello& hello, const wire::Gather& gather, Nanos now);
  // The error of a session in which some ranks share hosts or use co-located reducers, and others do not.
  [[nodiscard]] static Error modes_differ(uint32_t without, uint32_t with);
  // The rank of `hello`, whose proof is valid, is refused for what concerns the whole session.
  void note_refused(Connection& from, const wire::Hello& hello, const Error& error);
  // A rank of the session joins it without GATHER. Returns the error for it if other ranks wait for it in a
  // GATHER, which are refused with the same error.
  [[nodiscard]] std::optional<Error> on_join(Connection& from, const wire::Hello& hello);
  // The rank that has this reducer has failed: refuses the ranks of its session that wait.
  void end(const SessionId& session);
  // Whether ranks of a refused session, other than rank 0, may not have learned why. False: nothing is known
  // of it.
  [[nodiscard]] bool owes_reason(const SessionId& session) const;
  void forget(const SessionId& session) { refused_.erase(session); }
  // Refuses the ranks whose timeout has passed, naming the ranks that did not arrive, and those that wait for
  // a rank that has left.
  void tick(Nanos now);
  [[nodiscard]] static Error left_too_early(uint32_t rank);
  // Tells the others of the group, with ABORT, that this rank has left it, and why. They may have no more
  // need of each other, and then don't look at it.
  static void leave_group(const std::shared_ptr<GatherGroup>& group, const Connection& from, uint32_t rank,
                          const Error& why);

 private:
  struct Entry {
    std::shared_ptr<Connection> connection;
    std::vector<uint8_t> data;
  };
  struct PendingGather {
    std::string job;
    uint32_t ranks = 0;
    Nanos deadline = 0;
    std::map<uint32_t, Entry> entries;  // by rank
    std::optional<uint32_t> left{};     // a rank that has closed its connection, and has not come again
  };
  struct Refusal {
    std::string job;
    uint32_t ranks = 0;
    Error error;
    std::map<uint32_t, std::weak_ptr<Connection>> told{};  // by rank
  };
  using Key = std::pair<SessionId, uint8_t>;
  using Rounds = std::map<Key, PendingGather>;

  // The round, but this one, in which ranks of the session wait; end() if there is none.
  [[nodiscard]] Rounds::iterator find_waiting(const SessionId& session, const std::string& job,
                                              std::optional<uint8_t> but = std::nullopt);
  [[nodiscard]] static Error rounds_differ(uint32_t rank, uint8_t round, uint32_t other, uint8_t other_round);
  [[nodiscard]] static std::optional<Error> check(const wire::Hello& hello, const PendingGather& round);
  static void remove_closed(PendingGather& round);
  void refuse_all(const SessionId& session, PendingGather& round, const Error& error, uint32_t rank);
  // Why the session was refused before, which the rank of `hello` is told now.
  [[nodiscard]] std::optional<Error> refused_before(Connection& from, const wire::Hello& hello);
  void remember(const SessionId& session, const Refusal& refusal, uint32_t told,
                const std::shared_ptr<Connection>& connection);
  static void send_to_all(const PendingGather& round, uint8_t number);

  const Nanos longest_wait_;
  const bool remembers_;
  std::map<SessionId, Refusal> refused_;  // of the sessions of this process, if it remembers them
  Rounds rounds_;
};

}  // namespace sluice::reducer
