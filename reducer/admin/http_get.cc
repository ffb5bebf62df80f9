#include "reducer/admin/http_get.h"

#include "core/clock.h"
#include "transport/tcp/address.h"
#include "transport/tcp/connect.h"

namespace sluice::reducer::admin {

Result<HttpAnswer> http_get(const std::string& host, uint16_t port, const std::string& path, Nanos timeout) {
  const std::string name = transport::tcp::endpoint_text(host, port);
  const Nanos deadline = monotonic_now() + timeout;
  auto socket = transport::tcp::connect_to(
      host, port, {.buffer_bytes = 0, .congestion_control = {}, .local_address = {}}, deadline);
  if (!socket) return tl::unexpected(std::move(socket.error()));
  transport::tcp::HttpClient client(std::move(*socket), {.body_bytes = 64 * kKiB});
  auto answer =
      client.call("GET " + path + " HTTP/1.1\r\nHost: " + name + "\r\nConnection: close\r\n\r\n", deadline);
  if (answer) return std::move(*answer);
  if (answer.error().kind == transport::tcp::HttpError::Kind::kTimeout)
    return fail(Errc::kTimeout, name + " did not answer " + path + " in time");
  return fail(Errc::kReset, name + " did not answer " + path + ": " + answer.error().text);
}

}  // namespace sluice::reducer::admin
