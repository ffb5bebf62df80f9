#include "reducer/admin/http_connection.h"

#include <chrono>

#include "core/clock.h"

namespace sluice::reducer::admin {
namespace {

// Limits of the bytes that are read and discarded before a close.
constexpr auto kDrainTime = std::chrono::seconds(1);
constexpr size_t kDrainRead = 4096, kDrainBytes = 256 * kKiB;

}  // namespace

HttpConnection::HttpConnection(asio::ip::tcp::socket socket, const HttpOptions& options,
                               const RequestHandler& handler, StatusCache& status,
                               std::function<void(HttpConnection&)> on_destroyed)
    : stream_(std::move(socket)),
      buffer_(2 * size_t{options.max_header_bytes}),
      options_(options),
      handler_(handler),
      status_(status),
      on_destroyed_(std::move(on_destroyed)) {}

HttpConnection::~HttpConnection() {
  on_destroyed_(*this);
}

void HttpConnection::close() noexcept {
  stream_.close();
}

void HttpConnection::read() {
  is_awaiting_request_ = true;
  since_ = monotonic_now();
  parser_.emplace();
  parser_->header_limit(options_.max_header_bytes);
  stream_.expires_after(std::chrono::nanoseconds(options_.request_timeout));
  http::async_read_header(stream_, buffer_, *parser_,
                          [self = shared_from_this()](const boost::system::error_code& error, size_t) {
                            self->on_header(error);
                          });
}

void HttpConnection::on_header(const boost::system::error_code& error) {
  is_awaiting_request_ = false;
  since_ = monotonic_now();
  is_head_request_ = false;
  closes_afterwards_ = true;
  if (error) {
    if (error == http::error::header_limit || error == http::error::buffer_overflow) {
      return respond(error_response(
          431, "request header exceeds " + std::to_string(options_.max_header_bytes) + " bytes"));
    }
    // Other errors are the end of the stream, or the request timeout.
    const bool is_malformed = error.category() == make_error_code(http::error::end_of_stream).category() &&
                              error != http::error::end_of_stream && error != http::error::partial_message;
    if (is_malformed) return respond(error_response(400, "malformed HTTP request: " + error.message()));
    return close();
  }
  const auto& request = parser_->get();
  const bool has_body = parser_->chunked() || parser_->content_length().value_or(0) != 0;
  if (request.method() != http::verb::get && request.method() != http::verb::head)
    return respond(error_response(405, "method not allowed; expected GET or HEAD"));
  if (has_body) return respond(error_response(400, "request must not have a body"));
  is_head_request_ = request.method() == http::verb::head;
  closes_afterwards_ = !request.keep_alive();
  const std::string_view target(request.target().data(), request.target().size());
  std::string path(target.substr(0, target.find_first_of("?#")));
  if (path.empty() || path.front() != '/')
    return respond(error_response(400, "request target must be a path that starts with /"));
  if (!RequestHandler::needs_status(path)) return respond(handler_.handle(path, nullptr));
  status_.get([self = shared_from_this(), path = std::move(path)](const StatusCache::Text& text) {
    self->respond(self->handler_.handle(path, text.get()));
  });
}

void HttpConnection::respond(HttpResponse response) {
  response_ = {};
  response_.result(response.status);
  response_.version(11);
  response_.set(http::field::server, "sluice");
  response_.set(http::field::content_type, response.type);
  response_.set(http::field::cache_control, "no-store");
  response_.set("X-Content-Type-Options", "nosniff");
  response_.set("Referrer-Policy", "no-referrer");
  response_.set("Content-Security-Policy", response.policy);
  if (response.status == 405) response_.set(http::field::allow, "GET, HEAD");
  response_.keep_alive(!closes_afterwards_);
  response_.body() = std::move(response.body);
  response_.prepare_payload();
  serializer_.emplace(response_);
  stream_.expires_after(std::chrono::nanoseconds(options_.response_timeout));
  auto next = [self = shared_from_this()](const boost::system::error_code& error, size_t) {
    if (error) return self->close();
    if (!self->closes_afterwards_) return self->read();
    boost::system::error_code ignored;
    self->stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
    self->stream_.expires_after(kDrainTime);
    self->drain_before_close();
  };
  if (is_head_request_) {
    http::async_write_header(stream_, *serializer_, std::move(next));
  } else {
    http::async_write(stream_, *serializer_, std::move(next));
  }
}

// Closing with unread bytes would reset the connection, and the client could lose the response.
void HttpConnection::drain_before_close() {
  is_awaiting_request_ = true;
  buffer_.clear();
  stream_.async_read_some(buffer_.prepare(kDrainRead),
                          [self = shared_from_this()](const boost::system::error_code& error, size_t bytes) {
                            self->drained_bytes_ += bytes;
                            if (error || self->drained_bytes_ > kDrainBytes) return self->close();
                            self->drain_before_close();
                          });
}

}  // namespace sluice::reducer::admin
