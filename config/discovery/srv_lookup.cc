#include "config/discovery/srv_lookup.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "config/discovery/srv_message.h"
#include "core/clock.h"

namespace sluice::config::discovery {
namespace {

constexpr Nanos kPatience = 1 * kSecond;  // with one server, each time
constexpr int kRounds = 2;                // UDP loses packets

class Socket {
 public:
  Socket(int family, int type) : fd_(::socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {}
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  [[nodiscard]] int fd() const noexcept { return fd_; }
  // Until it is ready for `events`, or the deadline has passed.
  [[nodiscard]] bool await(short events, Nanos deadline) const {
    for (;;) {
      const Nanos left = deadline - monotonic_now();
      if (left <= 0) return false;
      pollfd p{.fd = fd_, .events = events, .revents = 0};
      const int n = ::poll(&p, 1, static_cast<int>(left / kMillisecond) + 1);
      if (n > 0) return true;
      if (n < 0 && errno != EINTR) return false;
    }
  }

 private:
  int fd_;
};

struct Address {
  sockaddr_storage bytes{};
  socklen_t size = 0;
};

Result<Address> address_of(const NameServer& server) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(server.address.c_str(), std::to_string(server.port).c_str(), &hints, &found) != 0)
    return fail(Errc::kInvalidArgument, "\"" + server.address + "\" is no address");
  Address out;
  std::memcpy(&out.bytes, found->ai_addr, found->ai_addrlen);
  out.size = found->ai_addrlen;
  ::freeaddrinfo(found);
  return out;
}

std::string text_of(const NameServer& server) {
  return server.address + " port " + std::to_string(server.port);
}

tl::unexpected<Error> silent(const NameServer& server) {
  return fail(Errc::kTimeout, "name server " + text_of(server) + " does not answer");
}

tl::unexpected<Error> system_error(const NameServer& server) {
  return fail(Errc::kTimeout, "name server " + text_of(server) + ": " + std::strerror(errno));
}

Result<SrvReply> ask_by_udp(const NameServer& server, const Address& address, const DnsBytes& query,
                            uint16_t id, Nanos deadline) {
  const Socket socket(address.bytes.ss_family, SOCK_DGRAM);
  // Connected, so that only this server's packets come in, and its host's refusal too.
  if (socket.fd() < 0 ||
      ::connect(socket.fd(), reinterpret_cast<const sockaddr*>(&address.bytes), address.size) != 0 ||
      ::send(socket.fd(), query.data(), query.size(), MSG_NOSIGNAL) < 0) {
    return system_error(server);
  }
  std::array<uint8_t, 4096> bytes;  // more than kUdpPayload asks for
  while (socket.await(POLLIN, deadline)) {
    const ssize_t n = ::recv(socket.fd(), bytes.data(), bytes.size(), 0);
    if (n < 0 && errno != EAGAIN && errno != EINTR) return system_error(server);
    if (n <= 0) continue;
    auto reply = read_srv_reply(std::span(bytes).first(static_cast<size_t>(n)), id);
    if (reply) return reply;  // what is no answer to this may be one to an earlier query
  }
  return silent(server);
}

// All of `bytes`, one way or the other.
template <typename Transfer>
bool transfer_all(const Socket& socket, short events, std::span<uint8_t> bytes, Nanos deadline,
                  Transfer transfer) {
  while (!bytes.empty()) {
    if (!socket.await(events, deadline)) return false;
    const ssize_t n = transfer(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return false;
    if (n > 0) bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return true;
}

Result<SrvReply> ask_by_tcp(const NameServer& server, const Address& address, const DnsBytes& query,
                            uint16_t id, Nanos deadline) {
  const Socket socket(address.bytes.ss_family, SOCK_STREAM);
  if (socket.fd() < 0 ||
      (::connect(socket.fd(), reinterpret_cast<const sockaddr*>(&address.bytes), address.size) != 0 &&
       errno != EINPROGRESS)) {
    return system_error(server);
  }
  DnsBytes framed{static_cast<uint8_t>(query.size() >> 8), static_cast<uint8_t>(query.size() & 0xff)};
  framed.insert(framed.end(), query.begin(), query.end());
  std::array<uint8_t, 2> length{};
  if (!transfer_all(socket, POLLOUT, framed, deadline, ::send) ||
      !transfer_all(socket, POLLIN, length, deadline, ::recv)) {
    return silent(server);
  }
  DnsBytes bytes(static_cast<size_t>(length[0]) << 8 | length[1]);
  if (!transfer_all(socket, POLLIN, bytes, deadline, ::recv)) return silent(server);
  return read_srv_reply(bytes, id);
}

Result<SrvReply> ask(const NameServer& server, const std::string& name, Nanos deadline) {
  auto address = address_of(server);
  if (!address) return tl::unexpected(address.error());
  uint16_t id = 0;
  if (::getrandom(&id, sizeof id, 0) != sizeof id) return fail(Errc::kSystem, "no random number");
  const auto query = srv_query(name, id);
  if (!query) return tl::unexpected(query.error());
  auto reply = ask_by_udp(server, *address, *query, id, deadline);
  if (reply && reply->kind == SrvReply::Kind::kCut)
    reply = ask_by_tcp(server, *address, *query, id, deadline);
  if (reply && reply->kind == SrvReply::Kind::kCut)
    return fail(Errc::kUnsupported, "name server " + text_of(server) + " cuts its answer over TCP too");
  return reply;
}

// What is said of one name, whole: by the first server that knows.
Result<SrvReply> ask_all(const std::string& name, const ResolvConf& conf, Nanos deadline) {
  Result<SrvReply> last = fail(Errc::kTimeout, name + ": there was no time to ask");
  for (int round = 0; round < kRounds; ++round) {
    for (const NameServer& server : conf.servers) {
      const Nanos now = monotonic_now();
      if (now >= deadline) return last;
      auto reply = ask(server, name, std::min(deadline, now + kPatience));
      if (reply && reply->kind != SrvReply::Kind::kRefused) return reply;
      if (!reply && reply.error().code == Errc::kInvalidArgument) return reply;
      last = std::move(reply);
    }
  }
  return last;
}

}  // namespace

Result<std::vector<SrvRecord>> look_up_srv(const std::string& name, const ResolvConf& conf, Nanos deadline) {
  Error last{Errc::kTimeout, name + ": there was no time to ask"};
  for (const std::string& whole : candidates(name, conf)) {
    auto reply = ask_all(whole, conf, deadline);
    if (!reply) {
      if (reply.error().code == Errc::kInvalidArgument) return tl::unexpected(reply.error());
      last = reply.error();
      if (last.code == Errc::kTimeout) break;  // the next name would find the same silence
    } else if (reply->kind == SrvReply::Kind::kRecords) {
      return std::move(reply->records);
    } else if (reply->kind == SrvReply::Kind::kRefused) {
      last = {Errc::kUnsupported, whole + ": the name server refuses, code " + std::to_string(reply->code)};
    } else if (last.code != Errc::kUnsupported) {
      last = {Errc::kUnsupported, "no SRV records of " + whole + " (its port must be named data)"};
    }
  }
  return tl::unexpected(std::move(last));
}

}  // namespace sluice::config::discovery
