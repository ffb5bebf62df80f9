#include "transport/tcp/http_client.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <boost/beast/core/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cerrno>
#include <utility>

#include "core/clock.h"
#include "transport/tcp/blocking_io.h"

namespace sluice::transport::tcp {
namespace {

namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;
using Parser = http::response_parser<http::string_body>;

constexpr size_t kMaxUnparsed = 64 * kKiB;  // such as a chunk's header

HttpError::Kind kind_of(const error_code& error) {
  using Kind = HttpError::Kind;
  if (error == beast::error::timeout) return Kind::kTimeout;
  if (error.category() != http::make_error_code(http::error::need_more).category()) return Kind::kSystem;
  if (error == http::error::body_limit) return Kind::kBodyLimit;
  if (error == http::error::header_limit || error == http::error::buffer_overflow) return Kind::kHeaderLimit;
  const bool is_end = error == http::error::end_of_stream || error == http::error::partial_message;
  return is_end ? Kind::kClosed : Kind::kMalformed;
}

// The result of `transfer`, a call that does not block, repeated until the deadline.
template <typename Transfer>
size_t transfer_by(Transfer transfer, int fd, short events, Nanos deadline, error_code& error) {
  while (monotonic_now() < deadline) {
    const ssize_t n = transfer();
    if (n >= 0) return static_cast<size_t>(n);
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      static_cast<void>(wait_ready(fd, events, deadline));
    } else if (errno != EINTR) {
      error.assign(errno, boost::system::system_category());
      return 0;
    }
  }
  error = beast::error::timeout;
  return 0;
}

error_code send(const Socket& socket, std::string_view bytes, Nanos deadline) {
  error_code error;
  while (!bytes.empty() && !error) {
    // iovec has no const variant.
    iovec block{.iov_base = const_cast<char*>(bytes.data()), .iov_len = bytes.size()};
    const auto transfer = [&] { return socket.send({&block, 1}); };
    bytes.remove_prefix(transfer_by(transfer, socket.fd(), POLLOUT, deadline, error));
  }
  return error;
}

// Reads and parses until is_complete().
template <typename Condition>
error_code receive(const Socket& socket, Parser& parser, std::string& received, Nanos deadline,
                   Condition is_complete) {
  error_code error;
  while (!is_complete()) {
    if (!received.empty()) {
      received.erase(0, parser.put({received.data(), received.size()}, error));
      if (!error) continue;
      if (error != http::error::need_more) return error;
      if (received.size() >= kMaxUnparsed) return http::error::buffer_overflow;
      error.clear();
    }
    std::array<char, 16 * kKiB> bytes;
    iovec block{.iov_base = bytes.data(), .iov_len = bytes.size()};
    const auto transfer = [&] { return socket.receive({&block, 1}); };
    const size_t n = transfer_by(transfer, socket.fd(), POLLIN, deadline, error);
    if (error) return error;
    received.append(bytes.data(), n);
    if (n != 0) continue;
    if (!parser.got_some()) return http::error::end_of_stream;
    parser.put_eof(error);
    if (error) return error;
  }
  return error;
}

}  // namespace

bool HttpClient::is_idle() const noexcept {
  char byte = 0;
  return socket_.valid() && received_.empty() &&
         ::recv(socket_.fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
         (errno == EAGAIN || errno == EWOULDBLOCK);
}

tl::expected<HttpAnswer, HttpError> HttpClient::call(std::string_view request, Nanos deadline) {
  Parser parser;
  parser.header_limit(limits_.header_bytes);
  parser.body_limit(limits_.body_bytes);
  error_code error = send(socket_, request, deadline);
  if (!error)
    error = receive(socket_, parser, received_, deadline, [&parser] { return parser.is_header_done(); });
  // The parser allocates the announced length when the body begins. Boost 1.74 applies the body limit to it
  // only if no byte of the body came with the header, so the header is read alone and checked here.
  if (!error && parser.content_length().value_or(0) > limits_.body_bytes) error = http::error::body_limit;
  parser.eager(true);
  if (!error) error = receive(socket_, parser, received_, deadline, [&parser] { return parser.is_done(); });
  if (error || !parser.get().keep_alive()) {
    socket_ = {};
    received_.clear();
  }
  if (error) return tl::unexpected(HttpError{kind_of(error), error.message()});
  return HttpAnswer{.status = parser.get().result_int(), .body = std::move(parser.get().body())};
}

}  // namespace sluice::transport::tcp
