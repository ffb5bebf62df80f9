// Class ViewChange runs a reducer's part of changing a session's view (protocol.md section 11).
//
// It merges what the ranks report about the session's reducers. While this reducer is the arbiter, it
// proposes the next view and collects the answers. It has no connections and no clock: messages are passed
// in, and a Step says what to send. Memory is bounded by kMaxViewChange, kMaxAddresses and the number of
// ranks. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "wire/membership_history.h"
#include "wire/messages.h"

namespace sluice::reducer {

class ViewChange {
 public:
  // The caller's duties after a message.
  enum class Step : uint8_t {
    kNothing,
    kPropose,    // send query_rates(), then query(), to every rank that has not left
    kCommit,     // send commit() to every rank that has not left
    kMismatch,   // the last answer has another view hash than that of first_answered_rank(): end the session
    kNoneLeft,   // no reducer is left: end the session
    kTooMany,    // more changes than a message can name or a version can count: end the session
    kMalformed,  // the message is no valid membership change: close its connection
  };

  // `own` is this reducer and `reducers` are the ids of JOIN. With `joined_running_session`, ranks have added
  // this reducer to a running session. VIEW_KNOWN tells later which of `reducers` were added. Until then
  // nothing is proposed, since versions count the additions.
  ViewChange(uint64_t own, uint32_t ranks, std::vector<uint64_t> reducers, bool joined_running_session);

  // The session has started. Handles what was reported before.
  [[nodiscard]] Step start();
  [[nodiscard]] Step on_suspect(uint64_t reducer);
  [[nodiscard]] Step on_view_known(const wire::MembershipChange& change);
  [[nodiscard]] Step on_rate_changes(const wire::RateChanges& message);
  [[nodiscard]] Step on_view_answer(uint32_t rank, const wire::ViewAnswer& answer);
  // The rank has left the session: its answer is not needed, and one that it gave is discarded.
  [[nodiscard]] Step on_rank_left(uint32_t rank);

  // The open proposal, if any.
  [[nodiscard]] const std::optional<wire::ViewQuery>& query() const noexcept { return query_; }
  // The changed link rates of the open proposal.
  [[nodiscard]] const std::vector<wire::RateChange>& query_rates() const noexcept { return query_rates_; }
  // The last view that this reducer committed; nothing after its removal from the session.
  [[nodiscard]] const std::optional<wire::ViewCommit>& commit() const noexcept { return commit_; }
  // True if the open proposal needs an answer of this rank.
  [[nodiscard]] bool waits_for(uint32_t rank) const noexcept {
    return query_ && !ranks_[rank].has_left && !ranks_[rank].first_unfinished;
  }
  [[nodiscard]] uint32_t first_answered_rank() const noexcept { return first_answered_rank_; }

  // The arbiter proposes views and declares ranks lost.
  [[nodiscard]] bool is_arbiter() const noexcept { return is_arbiter_; }
  [[nodiscard]] bool is_self(uint64_t reducer) const noexcept { return reducer == own_; }
  // This reducer was removed from the session.
  [[nodiscard]] bool is_removed() const { return history_.is_removed(own_); }
  [[nodiscard]] bool has_other_reducers() const;
  [[nodiscard]] const wire::MembershipHistory& history() const noexcept { return history_; }

 private:
  struct RankState {
    std::optional<uint64_t> first_unfinished;  // answer to the open proposal
    bool has_left = false;
  };

  [[nodiscard]] Step on_history_changed();
  [[nodiscard]] Step propose();
  [[nodiscard]] Step commit_if_answered();
  void read_initial_membership(const wire::MembershipChange& change);
  void update_arbiter();
  [[nodiscard]] std::string address_text() const;  // of VIEW_QUERY

  const uint64_t own_;
  wire::MembershipHistory history_;
  std::map<uint64_t, std::string> addresses_;  // of added reducers
  bool knows_initial_membership_;              // knows which of the JOIN's reducers were added
  bool started_ = false;
  bool proposal_due_ = false;  // the history has changed since the last proposal
  bool is_arbiter_ = false;

  std::vector<RankState> ranks_;
  std::optional<wire::ViewQuery> query_;
  std::vector<wire::RateChange> query_rates_;
  std::optional<wire::ViewCommit> commit_;
  uint64_t answered_hash_ = 0;
  uint32_t first_answered_rank_ = wire::kNoRank;
};

}  // namespace sluice::reducer
