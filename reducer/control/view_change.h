// A reducer's side of changing a session's view: what it has been told of the session's reducers, and, while
// it is the arbiter, the proposal it made of that and the answers to it (PROTOCOL.md section 11). Pure:
// messages in, messages to say out; no connections, no clock. Bounded by kMaxViewChange, kMaxAddresses and n.
// One thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "wire/messages.h"
#include "wire/roster.h"

namespace sluice::reducer {

class ViewChange {
 public:
  // What there is to do after something was heard.
  enum class Step : uint8_t {
    kNothing,
    kPropose,    // say query() to every rank that is not gone
    kCommit,     // say commit() to them
    kMismatch,   // the rank that answered last gave another view hash than first_answerer(): the session ends
    kNoneLeft,   // no reducer is left: the session ends
    kTooMany,    // more reducers came or went than a message can name: the session ends
    kMalformed,  // what was said is no roster: its connection's fault
  };

  // `own`: this reducer. `reducers`: the ids of JOIN. `came_later`: the session ran already when this reducer
  // was joined; which of `reducers` were added to it, this one among them, is told by VIEW_KNOWN, and until
  // then nothing is proposed, since versions count them.
  ViewChange(uint64_t own, uint32_t ranks, std::vector<uint64_t> reducers, bool came_later);

  // The session runs. Words that came before are taken up now.
  [[nodiscard]] Step start();
  [[nodiscard]] Step suspect(uint64_t reducer);
  [[nodiscard]] Step known(const wire::RosterChange& change);
  [[nodiscard]] Step answer(uint32_t rank, const wire::ViewAnswer& answer);
  // The rank has left the session for good: nothing is waited for from it, and what it answered is void.
  [[nodiscard]] Step gone(uint32_t rank);

  // The open proposal; nothing when there is none.
  [[nodiscard]] const std::optional<wire::ViewQuery>& query() const noexcept { return query_; }
  // What was committed last by this reducer, as long as it is one of the session's.
  [[nodiscard]] const std::optional<wire::ViewCommit>& commit() const noexcept { return commit_; }
  // The open proposal waits for this rank.
  [[nodiscard]] bool waits_for(uint32_t rank) const noexcept {
    return query_ && !ranks_[rank].gone && !ranks_[rank].first_unfinished;
  }
  [[nodiscard]] uint32_t first_answerer() const noexcept { return first_answerer_; }

  // This reducer is the one that proposes and that declares ranks lost.
  [[nodiscard]] bool arbiter() const noexcept { return arbiter_; }
  [[nodiscard]] bool is_self(uint64_t reducer) const noexcept { return reducer == own_; }
  // It has been removed and does nothing more.
  [[nodiscard]] bool removed() const { return roster_.removed(own_); }
  [[nodiscard]] bool others_live() const;
  [[nodiscard]] const wire::Roster& roster() const noexcept { return roster_; }

 private:
  struct RankState {
    std::optional<uint64_t> first_unfinished;  // its answer to the open proposal
    bool gone = false;
  };

  [[nodiscard]] Step grown();
  [[nodiscard]] Step propose();
  [[nodiscard]] Step commit_if_answered();
  void take_base(const wire::RosterChange& change);
  void find_arbiter();
  [[nodiscard]] std::string address_text() const;  // of VIEW_QUERY

  const uint64_t own_;
  wire::Roster roster_;
  std::map<uint64_t, std::string> addresses_;  // of added ones
  bool placed_;                                // it is known which of the reducers were added
  bool started_ = false;
  bool due_ = false;  // the roster has grown by words that no proposal has covered
  bool arbiter_ = false;

  std::vector<RankState> ranks_;
  std::optional<wire::ViewQuery> query_;
  std::optional<wire::ViewCommit> commit_;
  uint64_t answered_hash_ = 0;
  uint32_t first_answerer_ = wire::kNoRank;
};

}  // namespace sluice::reducer
