// Which reducers a session began with, which came, which went: what ranks and reducers tell each other about
// losses (PROTOCOL.md section 11). It only grows, so of two opinions the union is right, whoever had them.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace sluice::wire {

class Roster {
 public:
  Roster() = default;
  // The reducers of the first view, in its order.
  explicit Roster(std::vector<uint64_t> first) : first_(std::move(first)) {}

  // True when the roster has grown by it. Who is not on the roster can be removed too: word of it may come
  // before word of its coming.
  bool add(uint64_t id);
  bool remove(uint64_t id);
  // An added one that every rank has joined: from now on it can be the arbiter.
  bool seat(uint64_t id);
  bool merge(const Roster& other);  // of the same first view

  [[nodiscard]] bool covers(const Roster& other) const;
  [[nodiscard]] bool living(uint64_t id) const;
  [[nodiscard]] bool removed(uint64_t id) const;
  // The first that lives and has a seat, in the order of ids(); nothing when none does. Those of the first
  // view have one.
  [[nodiscard]] std::optional<uint64_t> arbiter() const;
  [[nodiscard]] uint16_t version() const noexcept;
  // All that are or were on it: the first view's, then the added ones by ascending id.
  [[nodiscard]] std::vector<uint64_t> ids() const;
  [[nodiscard]] const std::vector<uint64_t>& first() const noexcept { return first_; }
  [[nodiscard]] const std::vector<uint64_t>& added() const noexcept { return added_; }
  [[nodiscard]] const std::vector<uint64_t>& removed() const noexcept { return removed_; }
  [[nodiscard]] const std::vector<uint64_t>& seated() const noexcept { return seated_; }

  friend bool operator==(const Roster&, const Roster&) = default;

 private:
  std::vector<uint64_t> first_;
  std::vector<uint64_t> added_;    // ascending
  std::vector<uint64_t> removed_;  // ascending
  std::vector<uint64_t> seated_;   // ascending
};

}  // namespace sluice::wire
