// Class UnprovedConnections keeps the connections whose clients have proved nothing yet, in the order in
// which they came, and chooses which of them a newer one displaces.
//
// Whoever reaches the port can open such connections, so their number must be bounded, and they must not keep
// ranks out. A rank sends HELLO at once: first to go is the oldest without one, or whose client was refused,
// if there are more than a few. Without a key a valid request counts as the proof. Control thread only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

namespace sluice::reducer {

class Connection;

class UnprovedConnections {
 public:
  // The number by which the others name it.
  [[nodiscard]] uint64_t add(const std::shared_ptr<Connection>& connection) {
    silent_.emplace(++last_, connection);
    return last_;
  }
  // Its client has sent a HELLO that is served, or has been refused since.
  void set_greeted(uint64_t number, bool greeted) {
    auto node = (greeted ? silent_ : greeted_).extract(number);
    if (!node.empty()) (greeted ? greeted_ : silent_).insert(std::move(node));
  }
  // It has proved itself or ended. No effect if it is not there.
  void remove(uint64_t number) noexcept {
    if (silent_.erase(number) == 0) greeted_.erase(number);
  }
  [[nodiscard]] size_t size() const noexcept { return silent_.size() + greeted_.size(); }
  // Null if there is none.
  [[nodiscard]] std::shared_ptr<Connection> oldest_silent() const {
    return silent_.empty() ? nullptr : silent_.begin()->second;
  }
  // Of at most `limit` connections. An eighth is left to those without HELLO: strangers that send one must
  // not displace each client that is about to.
  [[nodiscard]] std::shared_ptr<Connection> first_to_go(size_t limit) const {
    const bool may_go = silent_.size() >= std::max<size_t>(limit / 8, 1) || greeted_.empty();
    return may_go ? oldest_silent() : greeted_.begin()->second;
  }

 private:
  using ByArrival = std::map<uint64_t, std::shared_ptr<Connection>>;
  ByArrival silent_, greeted_;
  uint64_t last_ = 0;
};

}  // namespace sluice::reducer
