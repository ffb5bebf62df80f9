#include "reducer/admin/http_get.h"

#include <sys/socket.h>

#include <algorithm>
#include <chrono>

#include "core/clock.h"
#include "reducer/admin/beast.h"
#include "transport/tcp/address.h"
#include "transport/tcp/connect.h"
#include "transport/tcp/socket.h"

namespace sluice::reducer::admin {
namespace {

constexpr uint64_t kMaxBody = 64 * kKiB;

// State of the asynchronous steps.
struct GetRequest {
  explicit GetRequest(asio::io_context& io) : stream(io) {}
  beast::tcp_stream stream;
  http::request<http::empty_body> request;
  http::response_parser<http::string_body> parser;
  beast::flat_buffer buffer{2 * kMaxBody};
  boost::system::error_code error;
};

}  // namespace

Result<HttpReply> http_get(const std::string& host, uint16_t port, const std::string& path, Nanos timeout) {
  const std::string name = transport::tcp::endpoint_text(host, port);
  const Nanos deadline = monotonic_now() + timeout;
  auto socket = transport::tcp::connect_to(
      host, port, {.buffer_bytes = 0, .congestion_control = {}, .local_address = {}}, deadline);
  if (!socket) return tl::unexpected(std::move(socket.error()));
  sockaddr_storage peer{};
  socklen_t size = sizeof peer;
  getpeername(socket->fd(), reinterpret_cast<sockaddr*>(&peer), &size);

  asio::io_context io;
  GetRequest x(io);
  x.stream.socket().assign(peer.ss_family == AF_INET6 ? asio::ip::tcp::v6() : asio::ip::tcp::v4(),
                           socket->release());
  x.stream.expires_after(std::chrono::nanoseconds(std::max<Nanos>(deadline - monotonic_now(), 0)));
  x.request.method(http::verb::get);
  x.request.target(path);
  x.request.version(11);
  x.request.set(http::field::host, name);
  x.request.keep_alive(false);
  x.parser.body_limit(kMaxBody);
  http::async_write(x.stream, x.request, [&x](const boost::system::error_code& written, size_t) {
    x.error = written;
    if (written) return;
    http::async_read(x.stream, x.buffer, x.parser,
                     [&x](const boost::system::error_code& read, size_t) { x.error = read; });
  });
  io.run();
  if (x.error == beast::error::timeout)
    return fail(Errc::kTimeout, name + " did not answer " + path + " in time");
  if (x.error) return fail(Errc::kReset, name + " did not answer " + path + ": " + x.error.message());
  return HttpReply{.status = x.parser.get().result_int(), .body = std::move(x.parser.get().body())};
}

}  // namespace sluice::reducer::admin
