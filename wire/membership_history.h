#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace sluice::wire {

// MembershipHistory records the reducers of a session: those of the first view, those added, and those
// removed (protocol.md section 11). Ranks and reducers exchange it after losses. A history only grows, so
// merging two different histories of one session is always correct.
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
  bool merge(const MembershipHistory& other);  // of the same first view

  [[nodiscard]] bool covers(const MembershipHistory& other) const;
  [[nodiscard]] bool is_active(uint64_t id) const;
  [[nodiscard]] bool is_removed(uint64_t id) const;
  // The first reducer, in the order of ids(), that is active and either in the first view or confirmed;
  // nullopt if there is none.
  [[nodiscard]] std::optional<uint64_t> arbiter() const;
  // Number of changes since the first view.
  [[nodiscard]] uint16_t version() const noexcept;
  // All reducers, removed ones included: the first view in its order, then the added ones by ascending id.
  [[nodiscard]] std::vector<uint64_t> ids() const;
  [[nodiscard]] const std::vector<uint64_t>& first() const noexcept { return first_; }
  [[nodiscard]] const std::vector<uint64_t>& added() const noexcept { return added_; }
  [[nodiscard]] const std::vector<uint64_t>& removed() const noexcept { return removed_; }
  [[nodiscard]] const std::vector<uint64_t>& confirmed() const noexcept { return confirmed_; }

  friend bool operator==(const MembershipHistory&, const MembershipHistory&) = default;

 private:
  std::vector<uint64_t> first_;
  std::vector<uint64_t> added_;      // ascending
  std::vector<uint64_t> removed_;    // ascending
  std::vector<uint64_t> confirmed_;  // ascending
};

}  // namespace sluice::wire
