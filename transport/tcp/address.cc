#include "transport/tcp/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>

namespace sluice::transport::tcp {
namespace {

std::string lower_first(std::string text) {
  // Changes "No route to host", but not an acronym such as "RFS specific error".
  if (text.size() > 1 && std::isupper(static_cast<unsigned char>(text[1])) == 0) {
    text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  }
  return text;
}

// Empty for a socket that is not of IP.
std::string host_text(const sockaddr_storage& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.ss_family == AF_INET) {
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(address).sin_addr, text.data(), text.size());
  } else if (address.ss_family == AF_INET6) {
    const in6_addr& v6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(&v6)) {
      ::inet_ntop(AF_INET, &v6.s6_addr[12], text.data(), text.size());
    } else {
      ::inet_ntop(AF_INET6, &v6, text.data(), text.size());
    }
  }
  return text.data();
}

}  // namespace

std::string error_text(int number) {
  const char* text = ::strerrordesc_np(number);  // not translated, and thread-safe
  return text != nullptr ? lower_first(text) : "error " + std::to_string(number);
}

std::string endpoint_text(const std::string& host, uint16_t port) {
  const bool bare_ipv6 = host.find(':') != std::string::npos;
  return (bare_ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

std::string address_text(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET)
    return endpoint_text(host_text(address), ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port));
  if (address.ss_family == AF_INET6)
    return endpoint_text(host_text(address), ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port));
  return "local socket";
}

bool is_numeric(const std::string& host) noexcept {
  in6_addr address{};
  return ::inet_pton(AF_INET, host.c_str(), &address) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

std::string local_host(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return {};
  return host_text(address);
}

Result<uint16_t> bound_port(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return fail(Errc::kSystem, "cannot read the bound port: " + error_text(errno));
  }
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  if (address.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  return fail(Errc::kSystem, "cannot read the bound port: not an IP socket");
}

std::string peer_host(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return {};
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  const bool has_scope = address.ss_family == AF_INET6 && v6.sin6_scope_id != 0;
  return host_text(address) + (has_scope ? "%" + std::to_string(v6.sin6_scope_id) : "");
}

std::string peer_name(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "unconnected socket";
  return address_text(address);
}

bool is_peer_on_this_host(int fd) {
  sockaddr_storage peer{};
  socklen_t size = sizeof peer;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) return false;
  const std::string host = host_text(peer);
  // No network delivers a packet from a loopback address. 127.0.1.1 is on no interface.
  if (host.starts_with("127.") || host == "::1") return true;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return false;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr) continue;
    sockaddr_storage own{};
    if (i->ifa_addr->sa_family == AF_INET) std::memcpy(&own, i->ifa_addr, sizeof(sockaddr_in));
    if (i->ifa_addr->sa_family == AF_INET6) std::memcpy(&own, i->ifa_addr, sizeof(sockaddr_in6));
    if (!host.empty() && host_text(own) == host) return true;
  }
  return false;
}

Result<AddressList> resolve(const std::string& host, uint16_t port, int family, int flags) {
  addrinfo hints{};
  hints.ai_family = family;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const std::string service = std::to_string(port);
  int error = ::getaddrinfo(host.c_str(), service.c_str(), &hints, &list);
  const bool no_answer = error == EAI_AGAIN || error == EAI_SYSTEM || error == EAI_MEMORY;
  if (error != 0 && !no_answer && (flags & AI_ADDRCONFIG) != 0) {
    // AI_ADDRCONFIG ignores loopback addresses, so a host with no other address would not resolve localhost.
    // There is no retry when no server answered, because it would take as long again.
    hints.ai_flags &= ~AI_ADDRCONFIG;
    error = ::getaddrinfo(host.c_str(), service.c_str(), &hints, &list);
  }
  if (error == EAI_SYSTEM) return fail(Errc::kSystem, "cannot resolve " + host + ": " + error_text(errno));
  if (error == EAI_NONAME && (flags & AI_NUMERICHOST) != 0)
    return fail(Errc::kInvalidArgument, host + " is not an IP address");
  if (error != 0)
    return fail(Errc::kSystem, "cannot resolve " + host + ": " + lower_first(::gai_strerror(error)));
  return AddressList(list);
}

}  // namespace sluice::transport::tcp
