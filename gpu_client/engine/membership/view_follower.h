// Class ViewFollower implements a rank's side of view changes (protocol.md section 11) without connections
// or a clock. It stores what the rank knows about the reducers, which queries it has answered and which
// commits it has executed. Recovery feeds it with messages and executes the steps that it returns. One
// thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/endpoints.h"
#include "core/result.h"
#include "wire/membership_history.h"
#include "wire/messages.h"
#include "wire/view.h"

namespace sluice::engine {

class ViewFollower {
 public:
  // A reducer to be added.
  struct Addition {
    uint64_t id = 0;
    std::optional<config::Endpoint> address;  // nullopt: no rank has sent it
  };
  // The steps that a VIEW_QUERY requires.
  struct Query {
    enum class Step : uint8_t {
      kSendKnown,     // the query lacks changes that this rank knows: answer with known_changes() to all
      kAccept,        // stop contributing, close and join reducers, then send answer()
      kRepeatAnswer,  // accepted and answered before: send answer() again
      kIgnore,        // older than the accepted query, or its joins are still in progress
      kViolation,     // the query violates the protocol
    };
    Step step = Step::kViolation;
    std::vector<uint64_t> close;  // removed reducers: close their connections
    std::vector<Addition> join;   // added reducers: call set_joined() or suspect() for each before answer()
    Error violation{};
  };
  // The step that a VIEW_COMMIT requires.
  struct Commit {
    enum class Step : uint8_t { kIgnore, kRestart, kViolation };
    Step step = Step::kViolation;  // kRestart: restart at base() in view()
    Error violation{};
  };

  // `first` is the view that the session was committed with.
  explicit ViewFollower(wire::View first);

  // Marks a reducer as lost or draining. Returns true when the rank did not know: send SUSPECT to all.
  bool suspect(uint64_t id) { return history_.remove(id); }
  // Adds a reducer that this rank has found. Returns true when the rank did not know: send known_changes() to
  // all.
  bool add(uint64_t id, const config::Endpoint& address);
  // Records that this rank's link has another rate, an is_link_rate(). Returns false when the session cannot
  // carry more changes of rates. Otherwise send rate_messages() of the history to all reducers. Only in a
  // session with link rates whose reducers all have kFeatureRateChanges.
  [[nodiscard]] bool change_rate(uint32_t rank, uint64_t rate);
  // Records that this rank has a control connection and `lanes` lane connections to an added reducer, whose
  // WELCOME named `link_rate` in bits/s (0: unknown). Returns false when the view would exceed the limits of
  // placement or slots, or needs the rate and it is not an is_link_rate(). The caller must then suspect the
  // reducer, as all ranks do.
  [[nodiscard]] bool set_joined(uint64_t id, uint16_t lanes, uint64_t link_rate = 0);

  // Stores the link rates of the sender's next query. Returns the violation if they are not valid.
  [[nodiscard]] std::optional<Error> on_rate_changes(uint64_t from, const wire::RateChanges& message);
  // `from` is the reducer that sent the message.
  [[nodiscard]] Query on_query(uint64_t from, const wire::ViewQuery& query);
  // The answer to the accepted query. Returns nullopt when the rank knows of changes that the query lacks;
  // the arbiter learns of them and sends a new query.
  [[nodiscard]] std::optional<wire::ViewAnswer> answer(uint64_t first_unfinished);
  // `depth` is D of the session, in chunks.
  [[nodiscard]] Commit on_commit(uint64_t from, const wire::ViewCommit& commit, uint64_t first_unfinished,
                                 uint64_t depth);

  // Everything that the rank knows but the rates, for VIEW_KNOWN.
  [[nodiscard]] wire::ViewKnown known_changes() const;
  [[nodiscard]] const wire::MembershipHistory& history() const noexcept { return history_; }
  // The error when the session cannot continue: no reducer is left, or there are more changes than messages
  // can carry. To be checked after suspect(), add() and on_query().
  [[nodiscard]] std::optional<Error> fatal_error() const;

  // The view of the last executed commit, its hash and its first chunk; at first the view of the join. A
  // reducer that was added and removed again has 0 lanes in it, so wire::placement_table skips it.
  [[nodiscard]] const wire::View& view() const noexcept { return view_; }
  [[nodiscard]] uint64_t view_hash() const noexcept { return view_hash_; }
  [[nodiscard]] uint64_t base() const noexcept { return base_; }
  // True after a query was accepted and before its commit is executed: the rank contributes nothing.
  [[nodiscard]] bool is_stopped() const noexcept { return accepted_.version() != view_.version; }

 private:
  struct ReducerState {
    uint16_t lanes = 0;
    uint16_t weight = 1;
    uint64_t rate = 0;
    uint32_t host_rank = wire::kNoRank;
    std::optional<config::Endpoint> address;
    bool joined = false;
    bool closed = false;
    std::vector<wire::RateChange> offered_rates{};  // of its RATE_CHANGES, ascending by rank
  };
  struct SentAnswer {
    uint64_t hash = 0;
    uint64_t arbiter = 0;
  };

  [[nodiscard]] Result<wire::MembershipHistory> parse_query(uint64_t from,
                                                            const wire::ViewQuery& query) const;
  [[nodiscard]] Result<std::vector<std::optional<config::Endpoint>>> parse_addresses(
      const wire::ViewQuery& query) const;
  // True when the proposal has all changes that this rank knows or has answered.
  [[nodiscard]] bool is_covered_by(const wire::MembershipHistory& proposed) const;
  [[nodiscard]] wire::View make_view(const wire::MembershipHistory& history) const;

  const wire::View first_;
  std::map<uint64_t, ReducerState> reducers_;  // all reducers of history_
  wire::MembershipHistory history_;            // union of all changes that this rank knows
  wire::MembershipHistory last_answered_;      // of the query answered last
  wire::MembershipHistory accepted_;           // of the query accepted last; kept after its commit
  std::map<uint16_t, SentAnswer> answers_;     // by version; a version is answered for one history only
  wire::View view_;
  uint64_t view_hash_ = 0;
  uint64_t base_ = 0;
};

}  // namespace sluice::engine
