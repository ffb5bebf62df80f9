#include "reducer/admin/http_connection.h"

#include <algorithm>

#include "core/clock.h"
#include "transport/tcp/address.h"

namespace sluice::reducer::admin {
namespace {

constexpr size_t kRead = 4096;
// Limits of the bytes that are read and discarded before a close.
constexpr Nanos kDrainTime = kSecond;
constexpr size_t kDrainBytes = 256 * kKiB;

// Of "localhost:9470", "[::1]:9470".
std::string host_of_header(std::string_view header) {
  if (header.starts_with('[')) return std::string(header.substr(1, header.find(']') - 1));
  return std::string(header.substr(0, header.rfind(':')));
}

}  // namespace

HttpConnection::HttpConnection(StreamSocket socket, const HttpOptions& options, const RequestHandler& handler,
                               StatusCache& status, std::function<void(HttpConnection&)> on_destroyed)
    : socket_(std::move(socket)),
      timer_(socket_.get_executor()),
      buffer_(2 * size_t{options.max_header_bytes}),
      options_(options),
      handler_(handler),
      status_(status),
      on_destroyed_(std::move(on_destroyed)) {}

HttpConnection::~HttpConnection() {
  on_destroyed_(*this);
}

void HttpConnection::close() noexcept {
  boost::system::error_code ignored;
  socket_.close(ignored);
  timer_.expires_at(Timer::time_point::max());
}

void HttpConnection::expires_after(Nanos time) {
  timer_.expires_after(std::chrono::nanoseconds(time));
  timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
    // Without an error, the time may have been changed after the handler was queued.
    if (!error && self->timer_.expiry() <= Timer::clock_type::now()) self->close();
  });
}

void HttpConnection::read() {
  is_awaiting_request_ = true;
  since_ = monotonic_now();
  parser_.emplace();
  parser_->header_limit(options_.max_header_bytes);
  expires_after(options_.request_timeout);
  parse();
}

void HttpConnection::parse() {
  if (buffer_.size() != 0) {
    boost::system::error_code error;
    buffer_.consume(parser_->put(buffer_.data(), error));
    if (error != http::error::need_more) return on_header(error);
  }
  const size_t space = buffer_.max_size() - buffer_.size();
  if (space == 0) return on_header(http::error::buffer_overflow);
  socket_.async_read_some(buffer_.prepare(std::min(space, kRead)),
                          [self = shared_from_this()](const boost::system::error_code& error, size_t bytes) {
                            if (error) return self->close();
                            self->buffer_.commit(bytes);
                            self->parse();
                          });
}

void HttpConnection::on_header(const boost::system::error_code& error) {
  timer_.expires_at(Timer::time_point::max());  // the status has a timeout of its own
  is_awaiting_request_ = false;
  since_ = monotonic_now();
  is_head_request_ = false;
  closes_afterwards_ = true;
  if (error) {
    if (error == http::error::header_limit || error == http::error::buffer_overflow) {
      return respond(error_response(
          431, "request header exceeds " + std::to_string(options_.max_header_bytes) + " bytes"));
    }
    return respond(error_response(400, "malformed HTTP request: " + error.message()));
  }
  const auto& request = parser_->get();
  const bool has_body = parser_->chunked() || parser_->content_length().value_or(0) != 0;
  if (request.method() != http::verb::get && request.method() != http::verb::head)
    return respond(error_response(405, "method not allowed; expected GET or HEAD"));
  if (has_body) return respond(error_response(400, "request must not have a body"));
  is_head_request_ = request.method() == http::verb::head;
  closes_afterwards_ = !request.keep_alive();
  const auto header = request[http::field::host];
  const std::string host = host_of_header({header.data(), header.size()});
  // Nobody can make a numeric address lead elsewhere. Browsers always send the header.
  if (options_.only_local_names && !host.empty() && !transport::tcp::is_numeric(host) &&
      !beast::iequals(host, "localhost") && !beast::iequals(host, options_.host)) {
    return respond(error_response(421, "this port serves only its own host; ask for localhost"));
  }
  const std::string_view target(request.target().data(), request.target().size());
  std::string path(target.substr(0, target.find_first_of("?#")));
  if (path.empty() || path.front() != '/')
    return respond(error_response(400, "request target must be a path that starts with /"));
  if (!RequestHandler::needs_status(path)) return respond(handler_.handle(path, nullptr));
  status_.get([self = shared_from_this(), path = std::move(path)](const StatusCache::Text& text) {
    self->respond(self->handler_.handle(path, text.get()));
  });
}

void HttpConnection::respond(const HttpResponse& response) {
  const auto reason = http::obsolete_reason(http::int_to_status(response.status));
  response_ = "HTTP/1.1 " + std::to_string(response.status) + ' ' + std::string(reason) +
              "\r\nServer: sluice\r\nContent-Type: " + response.type +
              "\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer"
              "\r\nContent-Security-Policy: " +
              response.policy + (response.status == 405 ? "\r\nAllow: GET, HEAD" : "") +
              (closes_afterwards_ ? "\r\nConnection: close" : "") +
              "\r\nContent-Length: " + std::to_string(response.body.size()) + "\r\n\r\n";
  if (!is_head_request_) response_ += response.body;
  sent_ = 0;
  expires_after(options_.response_timeout);
  write();
}

void HttpConnection::write() {
  socket_.async_write_some(asio::buffer(response_) + sent_,
                           [self = shared_from_this()](const boost::system::error_code& error, size_t bytes) {
                             if (error) return self->close();
                             self->sent_ += bytes;
                             if (self->sent_ < self->response_.size()) return self->write();
                             if (!self->closes_afterwards_) return self->read();
                             boost::system::error_code ignored;
                             self->socket_.shutdown(StreamSocket::shutdown_send, ignored);
                             self->expires_after(kDrainTime);
                             self->drain_before_close();
                           });
}

// Closing with unread bytes would reset the connection, and the client could lose the response.
void HttpConnection::drain_before_close() {
  is_awaiting_request_ = true;
  buffer_.clear();
  socket_.async_read_some(buffer_.prepare(kRead),
                          [self = shared_from_this()](const boost::system::error_code& error, size_t bytes) {
                            self->drained_bytes_ += bytes;
                            if (error || self->drained_bytes_ > kDrainBytes) return self->close();
                            self->drain_before_close();
                          });
}

}  // namespace sluice::reducer::admin
