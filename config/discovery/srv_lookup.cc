#include "config/discovery/srv_lookup.h"

#include <ares.h>
#include <arpa/nameser.h>
#include <poll.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "config/printable_text.h"
#include "core/clock.h"

namespace sluice::config::discovery {
namespace {

constexpr int kTryMs = 1000;        // for one server; c-ares doubles it in the second round
constexpr int kTries = 2;           // UDP loses packets
constexpr int kEdnsPayload = 1232;  // no fragments on any path (DNS flag day 2020)

struct DestroyChannel {
  void operator()(ares_channel channel) const noexcept { ares_destroy(channel); }
};
using Channel = std::unique_ptr<ares_channeldata, DestroyChannel>;

// The answer to one query; c-ares calls receive() exactly once.
struct Reply {
  bool is_done = false;
  int status = ARES_ENODATA;
  std::vector<SrvRecord> records;

  static void receive(void* reply, int status, int, unsigned char* bytes, int length) {
    auto& self = *static_cast<Reply*>(reply);
    self.is_done = true;
    self.status = status;
    if (status == ARES_SUCCESS) self.status = self.parse(bytes, length);
  }

 private:
  int parse(const unsigned char* bytes, int length) {
    ares_srv_reply* list = nullptr;
    const int result = ares_parse_srv_reply(bytes, length, &list);
    // Priority and weight do not matter: all pods of a service are alike.
    for (const ares_srv_reply* r = list; r != nullptr; r = r->next)
      records.push_back({.target = r->host, .port = r->port});
    if (list != nullptr) ares_free_data(list);
    return result;
  }
};

Result<Channel> open_channel(const std::string& server) {
  // Its tables are set up once; later calls only count.
  static const int library = ares_library_init(ARES_LIB_INIT_ALL);
  if (library != ARES_SUCCESS) return fail(Errc::kSystem, std::string("c-ares: ") + ares_strerror(library));
  ares_options options{};
  options.flags = ARES_FLAG_EDNS;
  options.ednspsz = kEdnsPayload;
  options.timeout = kTryMs;
  options.tries = kTries;
  ares_channel raw = nullptr;
  const int opened = ares_init_options(
      &raw, &options, ARES_OPT_FLAGS | ARES_OPT_EDNSPSZ | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES);
  if (opened != ARES_SUCCESS) return fail(Errc::kSystem, std::string("c-ares: ") + ares_strerror(opened));
  Channel channel(raw);
  if (!server.empty() && ares_set_servers_ports_csv(raw, server.c_str()) != ARES_SUCCESS) {
    return invalid("SLUICE_DNS_SERVER: \"" + printable(server) +
                   "\": expected the IP address of a name server, with an optional port");
  }
  return channel;
}

// Waits for the next event of the channel's sockets and handles it.
void run_once(ares_channel channel, Nanos time_left) {
  std::array<ares_socket_t, ARES_GETSOCK_MAXNUM> sockets{};
  const int wanted = ares_getsock(channel, sockets.data(), static_cast<int>(sockets.size()));
  std::array<pollfd, ARES_GETSOCK_MAXNUM> polled{};
  nfds_t count = 0;
  for (unsigned i = 0; i < sockets.size(); ++i) {
    const bool reads = ARES_GETSOCK_READABLE(static_cast<unsigned>(wanted), i) != 0;
    const bool writes = ARES_GETSOCK_WRITABLE(static_cast<unsigned>(wanted), i) != 0;
    if (!reads && !writes) continue;
    const int events = (reads ? POLLIN : 0) | (writes ? POLLOUT : 0);
    polled[count++] = {.fd = sockets[i], .events = static_cast<short>(events), .revents = 0};
  }
  timeval limit{.tv_sec = time_left / kSecond, .tv_usec = time_left % kSecond / kMicrosecond};
  timeval chosen{};
  const timeval* wait = ares_timeout(channel, &limit, &chosen);
  const auto wait_ms = static_cast<int>(wait->tv_sec * 1000 + wait->tv_usec / 1000) + 1;
  if (::poll(polled.data(), count, wait_ms) <= 0) {
    ares_process_fd(channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);  // retries and timeouts
    return;
  }
  for (nfds_t i = 0; i < count; ++i) {
    if (polled[i].revents == 0) continue;
    const bool writable = (polled[i].revents & POLLOUT) != 0;
    const bool readable = (polled[i].revents & ~POLLOUT) != 0;  // errors show when reading
    ares_process_fd(channel, readable ? polled[i].fd : ARES_SOCKET_BAD,
                    writable ? polled[i].fd : ARES_SOCKET_BAD);
  }
}

std::string servers_text(ares_channel channel) {
  ares_addr_port_node* list = nullptr;
  std::string text;
  if (ares_get_servers_ports(channel, &list) != ARES_SUCCESS) return text;
  for (const ares_addr_port_node* s = list; s != nullptr; s = s->next) {
    std::array<char, 64> address{};
    if (ares_inet_ntop(s->family, &s->addr, address.data(), address.size()) == nullptr) continue;
    text += std::string(text.empty() ? "" : ", ") + address.data() + " port " +
            std::to_string(s->udp_port == 0 ? NAMESERVER_PORT : s->udp_port);
  }
  ares_free_data(list);
  return text;
}

Error error_of(int status, const std::string& name, ares_channel channel) {
  const std::string shown = printable(name);
  switch (status) {
    case ARES_ENODATA:
    case ARES_ENOTFOUND:
      return {Errc::kUnsupported, "no SRV records of " + shown + " (the service's port must be named data)"};
    case ARES_EBADNAME:
    case ARES_EFORMERR: return {Errc::kInvalidArgument, "\"" + shown + "\" is not a DNS name"};
    case ARES_ECONNREFUSED:
      return {Errc::kTimeout, "name server " + servers_text(channel) + ": connection refused"};
    case ARES_ETIMEOUT:
    case ARES_ECANCELLED:
      return {Errc::kTimeout, "name server " + servers_text(channel) + " does not answer"};
    default:
      return {Errc::kUnsupported,
              "name server " + servers_text(channel) + ", asked for " + shown + ": " + ares_strerror(status)};
  }
}

}  // namespace

Result<std::vector<SrvRecord>> look_up_srv(const std::string& name, const std::string& server,
                                           Nanos deadline) {
  SLUICE_ASSIGN_OR_RETURN(channel, open_channel(server));
  Reply reply;
  ares_search(channel.get(), name.c_str(), ns_c_in, ns_t_srv, Reply::receive, &reply);
  while (!reply.is_done) {
    const Nanos left = deadline - monotonic_now();
    if (left > 0) {
      run_once(channel.get(), left);
    } else {
      ares_cancel(channel.get());  // ends the query with ARES_ECANCELLED
    }
  }
  if (reply.status != ARES_SUCCESS) return tl::unexpected(error_of(reply.status, name, channel.get()));
  return std::move(reply.records);
}

}  // namespace sluice::config::discovery
