// Class MemberNames says how texts name the members of a session that is part of another one: the members of
// a rail are hosts (docs/design/adr/0028), and users know the ranks of their own session only.
//
// Reducers and the engine number members, so "rank 1" in their texts is member 1. A text of the user's
// session that travels through such a session has "rank #1" for its rank 1, and the field for a rank has
// kOuterRank set. Callers see neither.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/ids.h"
#include "wire/message_limits.h"

namespace sluice::engine {

class MemberNames {
 public:
  // `part` is what the session is of that of the user, who is rank `rank` there: "rail 1". `ranks`: those
  // that the members are there.
  MemberNames(const SessionId& session, Rank rank, std::string part, std::vector<Rank> ranks)
      : session_(session), rank_(rank), part_(std::move(part)), ranks_(std::move(ranks)) {}

  // A text of the member session for the user.
  [[nodiscard]] std::string outward(const std::string& text) const;
  // A text of the user's session for the members.
  [[nodiscard]] static std::string inward(const std::string& text);
  // The same for a text that needs none before it (wire::kWholeText).
  [[nodiscard]] static std::string inward_whole(const std::string& text) {
    return wire::kWholeText + inward(text);
  }
  // Why the member session ended, for the user: begins with the part unless a whole text is in it.
  [[nodiscard]] std::string reason(const std::string& text) const;

  // The same for the field of a message. wire::kNoRank is none: reducers replace it by the sender.
  static constexpr Rank kOuterRank = Rank{1} << 31;
  static constexpr Rank kNoOuterRank = wire::kNoRank - 1;
  [[nodiscard]] Rank outward(Rank member) const noexcept;
  [[nodiscard]] static constexpr Rank inward(Rank rank) noexcept {
    return rank < kOuterRank ? rank | kOuterRank : kNoOuterRank;
  }

  [[nodiscard]] const SessionId& session() const noexcept { return session_; }
  [[nodiscard]] Rank rank() const noexcept { return rank_; }
  [[nodiscard]] const std::string& part() const noexcept { return part_; }

 private:
  SessionId session_;
  Rank rank_;
  std::string part_;
  std::vector<Rank> ranks_;
};

}  // namespace sluice::engine
