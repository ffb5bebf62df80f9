// Class DiscardingRelay forwards TCP connections on loopback to a reducer, and can lose what workers send.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace sluice::test {

// One thread accepts connections, and two threads for each connection forward its bytes. All functions may be
// called from any thread. The destructor closes all connections.
class DiscardingRelay {
 public:
  explicit DiscardingRelay(uint16_t reducer_port) : reducer_(loopback(reducer_port)) {
    const sockaddr_in any_port = loopback(0);
    if (::bind(listener_, address_of(any_port), sizeof any_port) != 0 || ::listen(listener_, 16) != 0) return;
    accepting_ = std::thread([this] { accept_all(); });
  }
  ~DiscardingRelay() {
    ::shutdown(listener_, SHUT_RDWR);
    if (accepting_.joinable()) accepting_.join();
    close_connections();
    ::close(listener_);
  }
  DiscardingRelay(const DiscardingRelay&) = delete;
  DiscardingRelay& operator=(const DiscardingRelay&) = delete;

  [[nodiscard]] uint16_t port() const {
    sockaddr_in own{};
    socklen_t size = sizeof own;
    return ::getsockname(listener_, reinterpret_cast<sockaddr*>(&own), &size) == 0 ? ntohs(own.sin_port) : 0;
  }

  // From now on, the reducer gets nothing more of what workers send on the present connections.
  void discard() {
    const std::lock_guard lock(mutex_);
    for (const auto& connection : connections_) connection->discards = true;
  }

  // Closes the present connections and returns their number. New connections are accepted and forward all
  // bytes.
  size_t close_connections() {
    std::vector<std::unique_ptr<Connection>> present;
    {
      const std::lock_guard lock(mutex_);
      present.swap(connections_);
    }
    return present.size();
  }

 private:
  struct Connection {
    Connection(int from_worker, int to_reducer) : worker(from_worker), reducer(to_reducer) {
      upward = std::thread([this] { forward(worker, reducer, discards); });
      downward = std::thread([this] { forward(reducer, worker, kForwardsAll); });
    }
    ~Connection() {
      for (const int fd : {worker, reducer}) ::shutdown(fd, SHUT_RDWR);
      upward.join();
      downward.join();
      for (const int fd : {worker, reducer}) ::close(fd);
    }
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    int worker;
    int reducer;
    std::atomic<bool> discards = false;
    std::thread upward, downward;
  };
  static inline const std::atomic<bool> kForwardsAll = false;

  // Forwards bytes until one of the two sockets is closed, and then shuts down both.
  static void forward(int from, int to, const std::atomic<bool>& discards) {
    std::array<char, 65536> bytes;
    for (ssize_t got = 0; (got = ::recv(from, bytes.data(), bytes.size(), 0)) > 0;) {
      for (ssize_t sent = 0; !discards && sent < got;) {
        const ssize_t n = ::send(to, bytes.data() + sent, static_cast<size_t>(got - sent), MSG_NOSIGNAL);
        if (n < 0) break;
        sent += n;
      }
    }
    for (const int fd : {from, to}) ::shutdown(fd, SHUT_RDWR);
  }

  void accept_all() {
    for (int worker = 0; (worker = ::accept(listener_, nullptr, nullptr)) >= 0;) {
      const int reducer = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (::connect(reducer, address_of(reducer_), sizeof reducer_) != 0) ::shutdown(worker, SHUT_RDWR);
      const std::lock_guard lock(mutex_);
      connections_.push_back(std::make_unique<Connection>(worker, reducer));
    }
  }

  static sockaddr_in loopback(uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    return address;
  }
  static const sockaddr* address_of(const sockaddr_in& address) {
    return reinterpret_cast<const sockaddr*>(&address);
  }

  const sockaddr_in reducer_;
  const int listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::thread accepting_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Connection>> connections_;
};

}  // namespace sluice::test
