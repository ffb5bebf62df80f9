#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace sluice::wire {

// The link rate that a rank has measured of its own link. `sequence` counts the changes of this rank's rate
// from 1 on, so the entry with the highest sequence is the newest.
struct RateChange {
  uint32_t rank = 0;
  uint16_t sequence = 0;
  uint64_t rate = 0;  // bits/s, an is_link_rate()
  friend bool operator==(const RateChange&, const RateChange&) = default;
};

// MembershipHistory records the reducers of a session: those of the first view, those added, and those
// removed, and the changes of the ranks' link rates (protocol.md section 11). Ranks and reducers exchange it
// after losses. A history only grows, so merging two different histories of one session is always correct.
class MembershipHistory {
 public:
  MembershipHistory() = default;
  // The reducers of the first view, in its order.
  explicit MembershipHistory(std::vector<uint64_t> first) : first_(std::move(first)) {}

  // Each returns true when the history has grown. An unknown reducer can be removed too, because the news of
  // its removal may arrive before the news of its addition.
  bool add(uint64_t id);
  bool remove(uint64_t id);
  // Records that every rank has joined this added reducer. It can be the arbiter from then on.
  bool confirm(uint64_t id);
  // Records a change of a link rate. An entry with the sequence of a known one, or a lower one, is old.
  bool change_rate(const RateChange& change);
  bool merge(const MembershipHistory& other);  // of the same first view

  [[nodiscard]] bool covers(const MembershipHistory& other) const;
  [[nodiscard]] bool is_active(uint64_t id) const;
  [[nodiscard]] bool is_removed(uint64_t id) const;
  // The first reducer, in the order of ids(), that is active and either in the first view or confirmed;
  // nullopt if there is none.
  [[nodiscard]] std::optional<uint64_t> arbiter() const;
  // Number of changes since the first view, those of a rate included.
  [[nodiscard]] uint16_t version() const noexcept;
  // True when there are more changes than a version can count. The session cannot change its view then.
  [[nodiscard]] bool exceeds_versions() const noexcept { return change_count() > UINT16_MAX; }
  // All reducers, removed ones included: the first view in its order, then the added ones by ascending id.
  [[nodiscard]] std::vector<uint64_t> ids() const;
  [[nodiscard]] const std::vector<uint64_t>& first() const noexcept { return first_; }
  [[nodiscard]] const std::vector<uint64_t>& added() const noexcept { return added_; }
  [[nodiscard]] const std::vector<uint64_t>& removed() const noexcept { return removed_; }
  [[nodiscard]] const std::vector<uint64_t>& confirmed() const noexcept { return confirmed_; }
  // The newest change of each rank that has one, ascending by rank.
  [[nodiscard]] const std::vector<RateChange>& rate_changes() const noexcept { return rate_changes_; }

  friend bool operator==(const MembershipHistory&, const MembershipHistory&) = default;

 private:
  [[nodiscard]] uint64_t change_count() const noexcept;

  std::vector<uint64_t> first_;
  std::vector<uint64_t> added_;      // ascending
  std::vector<uint64_t> removed_;    // ascending
  std::vector<uint64_t> confirmed_;  // ascending
  std::vector<RateChange> rate_changes_;
};

struct RateChanges;

// The messages that carry these changes; none for no changes.
[[nodiscard]] std::vector<RateChanges> rate_messages(std::span<const RateChange> changes);
// The changes in a message; nullopt unless all lists have the same length, ranks ascend and are below
// `ranks`, sequences are at least 1 and each rate is an is_link_rate().
[[nodiscard]] std::optional<std::vector<RateChange>> read_rate_changes(const RateChanges& message,
                                                                       uint32_t ranks);

}  // namespace sluice::wire
