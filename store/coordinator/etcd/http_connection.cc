#include "store/coordinator/etcd/http_connection.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "config/printable_text.h"
#include "config/sizes.h"
#include "core/clock.h"

namespace sluice::store::etcd {
namespace {

std::string limit_text() {
  return "answer is longer than " + config::size_text(HttpConnection::kMaxAnswerBytes) + "iB";
}

Error error_of(const boost::system::error_code& error) {
  if (error == http::error::body_limit) return {Errc::kBadField, limit_text()};
  if (error == http::error::header_limit || error == http::error::buffer_overflow)
    return {Errc::kBadField, "header of the answer is longer than " +
                                 config::size_text(HttpConnection::kMaxHeaderBytes) + "iB"};
  if (error == http::error::end_of_stream || error == http::error::partial_message ||
      error == asio::error::eof)
    return {Errc::kReset, "connection closed before the answer was complete"};
  if (error.category() == http::make_error_code(http::error::bad_line_ending).category())
    return {Errc::kBadField, "answer is not HTTP: " + config::printable(error.message())};
  return {Errc::kReset, config::printable(error.message())};
}

// "2s" for the 1.998 s that are left of 2 s after the connection was made.
std::string rounded_text(Nanos duration) {
  const Nanos unit = duration < 100 * kMillisecond ? kMillisecond : 10 * kMillisecond;
  return config::duration_text((duration + unit / 2) / unit * unit);
}

// Finds a dead host in 10 s, so that is_idle() is not true for a connection to it.
void enable_keep_alive(int fd) noexcept {
  const auto set = [fd](int level, int option, int value) {
    static_cast<void>(::setsockopt(fd, level, option, &value, sizeof value));
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 4);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 2);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(IPPROTO_TCP, TCP_NODELAY, 1);
}

}  // namespace

template <typename Start>
Result<void> HttpConnection::run(Nanos deadline, Start start) {
  const Nanos left = std::max<Nanos>(deadline - monotonic_now(), 0);
  boost::system::error_code error;
  stream_.expires_after(std::chrono::nanoseconds(left));
  start([&error](const boost::system::error_code& result, auto...) { error = result; });
  io_.restart();
  io_.run();
  if (!error) return {};
  close();
  if (error == beast::error::timeout) return fail(Errc::kTimeout, "no answer in " + rounded_text(left));
  return tl::unexpected(error_of(error));
}

Result<void> HttpConnection::connect(const std::vector<Tcp::endpoint>& addresses, Nanos deadline) {
  Error last{Errc::kReset, "no address"};
  for (size_t i = 0; i < addresses.size(); ++i) {
    const Nanos now = monotonic_now();
    const Nanos share = std::max<Nanos>(deadline - now, 0) / static_cast<Nanos>(addresses.size() - i);
    auto connected =
        run(now + share, [&](auto handler) { stream_.async_connect(addresses[i], std::move(handler)); });
    if (connected) {
      enable_keep_alive(stream_.socket().native_handle());
      return {};
    }
    last = std::move(connected.error());
  }
  return tl::unexpected(std::move(last));
}

bool HttpConnection::is_idle() {
  if (!stream_.socket().is_open() || buffer_.size() != 0) return false;
  char byte = 0;
  return ::recv(stream_.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
         (errno == EAGAIN || errno == EWOULDBLOCK);
}

Result<HttpAnswer> HttpConnection::post(const std::string& path, std::string json, Nanos deadline) {
  http::request<http::string_body> request(http::verb::post, path, 11, std::move(json));
  request.set(http::field::host, host_);
  request.set(http::field::content_type, "application/json");
  request.prepare_payload();
  SLUICE_RETURN_IF_ERROR(
      run(deadline, [&](auto handler) { http::async_write(stream_, request, std::move(handler)); }));
  http::response_parser<http::string_body> parser;
  parser.header_limit(kMaxHeaderBytes);
  parser.body_limit(kMaxAnswerBytes);
  SLUICE_RETURN_IF_ERROR(run(deadline, [&](auto handler) {
    http::async_read_header(stream_, buffer_, parser, std::move(handler));
  }));
  // The parser allocates the announced length when the body begins. Boost 1.74 applies the body limit to it
  // only if no byte of the body came with the header, so the header is read alone and checked here.
  if (parser.content_length().value_or(0) > kMaxAnswerBytes) {
    close();
    return fail(Errc::kBadField, limit_text());
  }
  SLUICE_RETURN_IF_ERROR(
      run(deadline, [&](auto handler) { http::async_read(stream_, buffer_, parser, std::move(handler)); }));
  auto response = parser.release();
  if (!response.keep_alive()) close();
  return HttpAnswer{.status = response.result_int(), .body = std::move(response.body())};
}

void HttpConnection::close() noexcept {
  stream_.close();
  buffer_.clear();
}

}  // namespace sluice::store::etcd
