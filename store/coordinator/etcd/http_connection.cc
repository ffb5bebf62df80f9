#include "store/coordinator/etcd/http_connection.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

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

void HttpConnection::begin() noexcept {
  is_pending_ = true;
  is_done_ = false;
  error_ = {};
}

Result<void> HttpConnection::finish(Nanos deadline) {
  const Nanos begin = monotonic_now();
  if (!loop_.run_until(is_done_, deadline)) {
    close();
    return fail(Errc::kTimeout, "no answer in " + rounded_text(std::max<Nanos>(deadline - begin, 0)));
  }
  if (!error_) return {};
  Error error = error_of(error_);
  close();
  return tl::unexpected(std::move(error));
}

Result<void> HttpConnection::connect(const std::vector<Tcp::endpoint>& addresses, Nanos deadline) {
  Error last{Errc::kReset, "no address"};
  for (size_t i = 0; i < addresses.size(); ++i) {
    const Nanos now = monotonic_now();
    const Nanos share = std::max<Nanos>(deadline - now, 0) / static_cast<Nanos>(addresses.size() - i);
    begin();
    socket_.async_connect(addresses[i], [this](const boost::system::error_code& error) {
      is_pending_ = false;
      is_done_ = true;
      error_ = error;
    });
    auto connected = finish(now + share);
    if (connected) {
      enable_keep_alive(socket_.native_handle());
      return {};
    }
    last = std::move(connected.error());
    close();
  }
  return tl::unexpected(std::move(last));
}

bool HttpConnection::is_idle() {
  if (!socket_.is_open() || is_pending_ || buffer_.size() != 0) return false;
  char byte = 0;
  return ::recv(socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
         (errno == EAGAIN || errno == EWOULDBLOCK);
}

Result<HttpAnswer> HttpConnection::post(const std::string& path, std::string json, Nanos deadline) {
  request_ = {};
  request_.method(http::verb::post);
  request_.target(path);
  request_.version(11);
  request_.set(http::field::host, host_);
  request_.set(http::field::content_type, "application/json");
  request_.body() = std::move(json);
  request_.prepare_payload();
  parser_.emplace();
  parser_->header_limit(kMaxHeaderBytes);
  parser_->body_limit(kMaxAnswerBytes);
  begin();
  http::async_write(socket_, request_, [this](const boost::system::error_code& error, size_t) {
    is_pending_ = false;
    is_done_ = true;
    error_ = error;
  });
  SLUICE_RETURN_IF_ERROR(finish(deadline));
  while (!parser_->is_done()) {
    read_more();
    SLUICE_RETURN_IF_ERROR(finish(deadline));
    SLUICE_RETURN_IF_ERROR(check_length());
  }
  auto response = parser_->release();
  if (!response.keep_alive()) close();
  return HttpAnswer{.status = response.result_int(), .body = std::move(response.body())};
}

// The parser allocates the announced length when the body begins. Boost 1.74 applies the body limit to it
// only if no byte of the body came with the header, so the header is read alone and checked here.
Result<void> HttpConnection::check_length() {
  if (!parser_->is_header_done() || parser_->content_length().value_or(0) <= kMaxAnswerBytes) return {};
  close();
  return fail(Errc::kBadField, limit_text());
}

void HttpConnection::read_more() {
  begin();
  const auto handler = [this](const boost::system::error_code& error, size_t) {
    is_pending_ = false;
    is_done_ = true;
    error_ = error;
  };
  if (parser_->is_header_done()) {
    http::async_read_some(socket_, buffer_, *parser_, handler);
  } else {
    http::async_read_header(socket_, buffer_, *parser_, handler);
  }
}

// The handler of a pending operation refers to this object, so it must run first.
void HttpConnection::close() noexcept {
  boost::system::error_code ignored;
  socket_.close(ignored);
  while (is_pending_) loop_.run_ready();
  buffer_.clear();
}

}  // namespace sluice::store::etcd
