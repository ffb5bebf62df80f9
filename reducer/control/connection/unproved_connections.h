// Class UnprovedConnections keeps the connections whose clients have proved nothing yet, in the order in
// which they came, and chooses which of them a newer one displaces.
//
// Whoever reaches the port can open such connections, so their number must be bounded, and they must not keep
// ranks out. A rank sends HELLO at once: first to go is the oldest without one, or whose client was refused.
// Without a key a valid request counts as the proof. Control thread only.
#pragma once

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
  [[nodiscard]] std::shared_ptr<Connection> first_to_go() const {
    return silent_.empty() && !greeted_.empty() ? greeted_.begin()->second : oldest_silent();
  }

 private:
  using ByArrival = std::map<uint64_t, std::shared_ptr<Connection>>;
  ByArrival silent_, greeted_;
  uint64_t last_ = 0;
};

}  // namespace sluice::reducer
