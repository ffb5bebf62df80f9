// A rank's side of view changes (PROTOCOL.md section 11), without connections or clock: what the rank knows
// of the reducers, what it has answered, what it has carried out. The session feeds it and does what it says.
// One thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/endpoints.h"
#include "core/result.h"
#include "wire/messages.h"
#include "wire/roster.h"
#include "wire/view.h"

namespace sluice::engine {

class ViewFollower {
 public:
  struct Newcomer {
    uint64_t id = 0;
    std::optional<config::Endpoint> address;  // nothing: nobody has told it
  };
  // What a VIEW_QUERY asks for.
  struct Query {
    enum class Step : uint8_t {
      kTell,     // it does not cover what this rank knows: known() to all, that is the answer
      kTakeUp,   // stop contributing; close, join; then answer()
      kAnswer,   // taken up and answered before: answer() again
      kNothing,  // older than what was taken up, or the joining for it still goes on
      kBreach,
    };
    Step step = Step::kBreach;
    std::vector<uint64_t> close;  // removed: their connections are over
    std::vector<Newcomer> join;   // added: joined() or suspect() for each, before answer()
    Error breach{};
  };
  // What a VIEW_COMMIT asks for.
  struct Commit {
    enum class Step : uint8_t { kIgnore, kCarryOut, kBreach };
    Step step = Step::kBreach;  // kCarryOut: restart at base() in view()
    Error breach{};
  };

  // The view that the session was committed with.
  explicit ViewFollower(wire::View first);

  // A reducer that this rank takes for lost, or that wants to go. True when that is news: SUSPECT to all.
  bool suspect(uint64_t id);
  // A reducer that this rank found to be there. True when that is news: known() to all.
  bool add(uint64_t id, const config::Endpoint& address);
  // The newcomer's control connection and its lanes are there. False when the view would have more turns or
  // slots than placement allows: then it is to be suspected, as all ranks will.
  [[nodiscard]] bool joined(uint64_t id, uint16_t lanes);

  // `from`: the reducer on whose control connection it came.
  [[nodiscard]] Query on_query(uint64_t from, const wire::ViewQuery& query);
  // The answer to the query taken up. Nothing when the rank has come to know of more losses since: the
  // arbiter will hear of them and ask anew.
  [[nodiscard]] std::optional<wire::ViewAnswer> answer(uint64_t first_unfinished);
  // `depth`: D of the session, in chunks.
  [[nodiscard]] Commit on_commit(uint64_t from, const wire::ViewCommit& commit, uint64_t first_unfinished,
                                 uint64_t depth);

  // All that the rank knows, for VIEW_KNOWN.
  [[nodiscard]] wire::ViewKnown known() const;
  [[nodiscard]] const wire::Roster& roster() const noexcept { return roster_; }
  // Why the session can't go on whatever is said from here: no reducer is left, or the changes are more than
  // messages can tell. Ask after suspect(), add() and on_query().
  [[nodiscard]] std::optional<Error> hopeless() const;

  // The view that was carried out last, and its hash and first chunk; at the beginning that of the commit.
  // An added reducer that was removed again has no lanes in it, so it takes no place among the lanes that
  // wire::placement_table counts.
  [[nodiscard]] const wire::View& view() const noexcept { return view_; }
  [[nodiscard]] uint64_t view_hash() const noexcept { return view_hash_; }
  [[nodiscard]] uint64_t base() const noexcept { return base_; }
  // A query has been taken up and no commit carried out for it: the rank contributes nothing.
  [[nodiscard]] bool stopped() const noexcept { return pending_.version() != view_.version; }

 private:
  struct Place {
    uint16_t lanes = 0;
    uint16_t weight = 1;
    std::optional<config::Endpoint> address;
    bool joined = false;
    bool closed = false;
  };
  struct Answered {
    uint64_t hash = 0;
    uint64_t arbiter = 0;
  };

  [[nodiscard]] Result<wire::Roster> read(uint64_t from, const wire::ViewQuery& query) const;
  [[nodiscard]] Result<std::vector<std::optional<config::Endpoint>>> read_addresses(
      const wire::ViewQuery& query) const;
  [[nodiscard]] bool covered_by(const wire::Roster& proposed) const;
  [[nodiscard]] wire::View view_of(const wire::Roster& roster) const;

  const wire::View first_;
  std::map<uint64_t, Place> places_;       // of all on the roster
  wire::Roster roster_;                    // the union of all this rank was told
  wire::Roster agreed_;                    // what it answered last
  wire::Roster pending_;                   // what it took up last; stays when carried out
  std::map<uint16_t, Answered> answered_;  // by version; never two rosters of one
  wire::View view_;
  uint64_t view_hash_ = 0;
  uint64_t base_ = 0;
};

}  // namespace sluice::engine
