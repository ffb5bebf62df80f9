#include "store/coordinator/etcd/http_connection.h"

#include <netinet/tcp.h>

#include <algorithm>

#include "config/printable_text.h"
#include "config/sizes.h"
#include "core/clock.h"
#include "transport/tcp/connect.h"
#include "transport/tcp/socket_options.h"

namespace sluice::store::etcd {
namespace {

using transport::tcp::HttpClient;
using transport::tcp::HttpError;

// "2s" for the 1.998 s that are left of 2 s after the connection was made.
std::string rounded_text(Nanos duration) {
  const Nanos unit = duration < 100 * kMillisecond ? kMillisecond : 10 * kMillisecond;
  return config::duration_text((duration + unit / 2) / unit * unit);
}

Error error_of(const HttpError& error, Nanos allowed) {
  switch (error.kind) {
    case HttpError::Kind::kTimeout: return {Errc::kTimeout, "no answer in " + rounded_text(allowed)};
    case HttpError::Kind::kClosed: return {Errc::kReset, "connection closed before the answer was complete"};
    case HttpError::Kind::kHeaderLimit:
      return {Errc::kBadField, "header of the answer is longer than " +
                                   config::size_text(HttpConnection::kMaxHeaderBytes) + "iB"};
    case HttpError::Kind::kBodyLimit:
      return {Errc::kBadField,
              "answer is longer than " + config::size_text(HttpConnection::kMaxAnswerBytes) + "iB"};
    case HttpError::Kind::kMalformed:
      return {Errc::kBadField, "answer is not HTTP: " + config::printable(error.text)};
    case HttpError::Kind::kSystem: break;
  }
  return {Errc::kReset, config::printable(error.text)};
}

}  // namespace

Result<void> HttpConnection::connect(const AddressList& addresses, Nanos deadline) {
  int left = 0;
  for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) ++left;
  Error last{Errc::kReset, "no address"};
  for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next, --left) {
    const Nanos now = monotonic_now();
    const Nanos share = std::max<Nanos>(deadline - now, 0) / left;
    auto socket = transport::tcp::connect_one(
        *a, {.buffer_bytes = 0, .congestion_control = {}, .local_address = {}}, now + share);
    if (socket) {
      // Finds a dead host in 10 s, so that is_idle() is not true for a connection to it.
      transport::tcp::enable_keepalive(socket->fd(), 4, 2);
      static_cast<void>(transport::tcp::set_option(socket->fd(), IPPROTO_TCP, TCP_KEEPCNT, 3));
      client_ =
          HttpClient(std::move(*socket), {.header_bytes = kMaxHeaderBytes, .body_bytes = kMaxAnswerBytes});
      return {};
    }
    const bool is_timeout = socket.error().code == Errc::kTimeout;
    last = is_timeout ? Error{Errc::kTimeout, "no answer in " + rounded_text(share)}
                      : Error{Errc::kReset, std::move(socket.error().text)};
  }
  return tl::unexpected(std::move(last));
}

Result<HttpAnswer> HttpConnection::post(const std::string& path, const std::string& json, Nanos deadline) {
  const Nanos allowed = std::max<Nanos>(deadline - monotonic_now(), 0);
  auto answer = client_.call("POST " + path + " HTTP/1.1\r\nHost: " + host_ +
                                 "\r\nContent-Type: application/json\r\nContent-Length: " +
                                 std::to_string(json.size()) + "\r\n\r\n" + json,
                             deadline);
  if (!answer) return tl::unexpected(error_of(answer.error(), allowed));
  return std::move(*answer);
}

}  // namespace sluice::store::etcd
