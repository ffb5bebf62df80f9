#include "config/endpoints.h"

#include <arpa/inet.h>
#include <net/if.h>

#include <algorithm>
#include <array>
#include <optional>

#include "config/printable_text.h"
#include "core/parse_number.h"

namespace sluice::config {
namespace {

constexpr std::string_view kSpaces = " \t\r\n\v\f";
constexpr size_t kMaxHost = 253;  // limit of a DNS name, RFC 1035 section 2.3.4

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(kSpaces);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpaces) - first + 1);
}

bool is_address(int family, const std::string& text) {
  std::array<unsigned char, sizeof(in6_addr)> address{};
  return ::inet_pton(family, text.c_str(), address.data()) == 1;
}

// The name of an interface, or its number.
bool is_zone(std::string_view text) {
  return !text.empty() && text.size() < IFNAMSIZ && std::ranges::all_of(text, [](char c) {
    return c > ' ' && c <= '~' && std::string_view("/:%").find(c) == std::string_view::npos;
  });
}

// With or without a zone, as in "fe80::1%eth0".
bool is_ipv6(std::string_view text) {
  const size_t percent = text.find('%');
  return is_address(AF_INET6, std::string(text.substr(0, percent))) &&
         (percent == std::string_view::npos || is_zone(text.substr(percent + 1)));
}

// Finds what users write instead of an item: the remedy differs from that of a wrong host or port.
Result<void> check_form(std::string_view text) {
  const auto contains = [&](std::string_view characters) {
    return text.find_first_of(characters) != std::string_view::npos;
  };
  if (text.starts_with("\xEF\xBB\xBF"))
    return invalid("begins with a byte order mark (BOM); save the list as UTF-8 without it");
  if (contains("\"'`")) return invalid("found a quote; expected host[:port][*weight] without quotes");
  if (contains(";,"))
    return invalid("found more than one reducer; separate them by \",\", in a file by line breaks");
  if (const size_t scheme = text.find("://"); scheme != std::string_view::npos) {
    return invalid("expected host[:port][*weight], without " + in_quotes(text.substr(0, scheme + 3)));
  }
  return {};
}

// getaddrinfo() takes "10.1" for 10.0.0.1 and "7470" for 0.0.29.46, which no user means.
Result<void> check_host(std::string_view host) {
  if (host.empty()) return invalid("host is empty");
  if (host.size() > kMaxHost)
    return invalid("host is longer than " + std::to_string(kMaxHost) + " characters");
  if (host.find_first_of(kSpaces) != std::string_view::npos)
    return invalid(
        "a space is not allowed in a host name; separate reducers by \",\", in a file by line breaks");
  if (host.find(':') != std::string_view::npos) return {};  // an IPv6 address, which has been checked
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("._-").find(c) != std::string_view::npos;
  };
  if (!std::ranges::all_of(host, is_allowed))
    return invalid("host contains a character that is not allowed in a host name");
  if (host.find_first_not_of("0123456789.") == std::string_view::npos &&
      !is_address(AF_INET, std::string(host)))
    return invalid("expected a host name, or an IPv4 address of four numbers from 0 to 255");
  return {};
}

// Splits "host", "host:port", "[address]" and "[address]:port"; `port` stays empty when the text has none.
Result<void> split_host_port(std::string_view text, std::string_view& host,
                             std::optional<std::string_view>& port) {
  std::string_view rest;
  if (text.starts_with('[')) {
    const size_t close = text.find(']');
    if (close == std::string_view::npos) return invalid("missing \"]\" after the IPv6 address");
    host = text.substr(1, close - 1);
    rest = text.substr(close + 1);
    if (!rest.empty() && rest[0] != ':') return invalid("expected \":PORT\" after \"]\"");
    if (!is_ipv6(host))
      return invalid("expected an IPv6 address in the brackets, perhaps with \"%\" and its interface");
  } else {
    const size_t colon = text.find(':');
    if (colon != std::string_view::npos && text.find(':', colon + 1) != std::string_view::npos) {
      return invalid(is_ipv6(text) ? "an IPv6 address needs brackets, as in [fd00::2]:7470"
                                   : "found more than one \":\"; expected host[:port][*weight]");
    }
    host = text.substr(0, colon);
    rest = colon == std::string_view::npos ? std::string_view() : text.substr(colon);
  }
  if (!rest.empty()) port = rest.substr(1);
  return {};
}

Result<Endpoint> parse_one(std::string_view text) {
  SLUICE_RETURN_IF_ERROR(check_form(text));
  Endpoint out;
  if (const size_t star = text.find('*'); star != std::string_view::npos) {
    const std::string_view digits = trimmed(text.substr(star + 1));
    const auto weight = parse_number<uint32_t>(digits);
    if (!weight || *weight < 1 || *weight > kMaxWeight) {
      return invalid("weight " + in_quotes(digits) + " is not in 1.." + std::to_string(kMaxWeight));
    }
    out.weight = static_cast<uint16_t>(*weight);
    text = trimmed(text.substr(0, star));
  }
  std::string_view host;
  std::optional<std::string_view> port;
  SLUICE_RETURN_IF_ERROR(split_host_port(text, host, port));
  SLUICE_RETURN_IF_ERROR(check_host(host));
  if (port) {
    const auto value = parse_number<uint32_t>(*port);
    if (!value || *value < 1 || *value > 65535)
      return invalid("port " + in_quotes(*port) + " is not in 1..65535");
    out.port = static_cast<uint16_t>(*value);
  }
  out.host = host;
  return out;
}

}  // namespace

std::string to_string(const Endpoint& endpoint) {
  const bool is_ipv6 = endpoint.host.find(':') != std::string::npos;
  std::string out = is_ipv6 ? "[" + endpoint.host + "]" : endpoint.host;
  out += ":" + std::to_string(endpoint.port);
  if (endpoint.weight != 1) out += "*" + std::to_string(endpoint.weight);
  return out;
}

Result<void> add_endpoint(std::string_view item, const std::string& position, std::vector<Endpoint>& list) {
  item = trimmed(item);
  auto endpoint = parse_one(item);
  if (!endpoint) return add_context(position + in_quotes(item), endpoint.error());
  // Without this check a duplicate would appear later as a rejected session.
  const auto is_same = [&](const Endpoint& e) {
    return e.host == endpoint->host && e.port == endpoint->port;
  };
  if (const auto twin = std::find_if(list.begin(), list.end(), is_same); twin != list.end()) {
    return invalid(position + in_quotes(item) + ": duplicate of entry " +
                   std::to_string(twin - list.begin() + 1));
  }
  if (list.size() == kMaxEndpoints)
    return invalid(position + in_quotes(item) + ": too many reducers, the limit is " +
                   std::to_string(kMaxEndpoints));
  list.push_back(std::move(*endpoint));
  return {};
}

Result<std::vector<Endpoint>> parse_endpoints(std::string_view text) {
  if (trimmed(text).empty()) return invalid("reducer list is empty");
  std::vector<Endpoint> out;
  for (size_t item_number = 1;; ++item_number) {
    const size_t comma = text.find(',');
    const std::string position = "item " + std::to_string(item_number);
    const std::string_view item = trimmed(text.substr(0, comma));
    if (item.empty()) return invalid(position + " is empty");
    SLUICE_RETURN_IF_ERROR(add_endpoint(item, position + ", ", out));
    if (comma == std::string_view::npos) return out;
    text.remove_prefix(comma + 1);
  }
}

bool is_loopback(const Endpoint& endpoint) noexcept {
  const std::string_view host = endpoint.host;
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

}  // namespace sluice::config
