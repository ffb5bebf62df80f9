#include "reducer/admin/http_connection.h"

#include <chrono>

#include "core/clock.h"

namespace sluice::reducer::admin {
namespace {

constexpr auto kSeeOffTime = std::chrono::seconds(1);
constexpr size_t kSeeOffPiece = 4096, kSeeOffBytes = 256 * kKiB;

}  // namespace

HttpConnection::HttpConnection(asio::ip::tcp::socket socket, const HttpOptions& options,
                               const Answers& answers, StatusFeed& status,
                               std::function<void(HttpConnection&)> gone)
    : stream_(std::move(socket)),
      buffer_(2 * size_t{options.most_header_bytes}),
      options_(options),
      answers_(answers),
      status_(status),
      gone_(std::move(gone)) {}

HttpConnection::~HttpConnection() {
  gone_(*this);
}

void HttpConnection::close() noexcept {
  stream_.close();
}

void HttpConnection::read() {
  silent_ = true;
  since_ = monotonic_now();
  parser_.emplace();
  parser_->header_limit(options_.most_header_bytes);
  stream_.expires_after(std::chrono::nanoseconds(options_.request_timeout));
  http::async_read_header(
      stream_, buffer_, *parser_,
      [self = shared_from_this()](const boost::system::error_code& error, size_t) { self->was_read(error); });
}

void HttpConnection::was_read(const boost::system::error_code& error) {
  silent_ = false;
  since_ = monotonic_now();
  head_ = false;
  last_ = true;
  if (error) {
    if (error == http::error::header_limit || error == http::error::buffer_overflow)
      return respond(refusal(431, "the request's header is too long"));
    // What is no request; anything else is an end: the client's, or that of its time.
    const bool is_wrong = error.category() == make_error_code(http::error::end_of_stream).category() &&
                          error != http::error::end_of_stream && error != http::error::partial_message;
    if (is_wrong) return respond(refusal(400, "this is no HTTP request: " + error.message()));
    return close();
  }
  const auto& request = parser_->get();
  const bool has_body = parser_->chunked() || parser_->content_length().value_or(0) != 0;
  if (request.method() != http::verb::get && request.method() != http::verb::head)
    return respond(refusal(405, "only GET and HEAD"));
  if (has_body) return respond(refusal(400, "a request with a body is not taken"));
  head_ = request.method() == http::verb::head;
  last_ = !request.keep_alive();
  const std::string_view target(request.target().data(), request.target().size());
  std::string path(target.substr(0, target.find_first_of("?#")));
  if (path.empty() || path.front() != '/') return respond(refusal(400, "the request names no path"));
  if (!Answers::needs_status(path)) return respond(answers_.answer(path, nullptr));
  status_.get([self = shared_from_this(), path = std::move(path)](const StatusFeed::Text& text) {
    self->respond(self->answers_.answer(path, text.get()));
  });
}

void HttpConnection::respond(Answer answer) {
  response_ = {};
  response_.result(answer.status);
  response_.version(11);
  response_.set(http::field::server, "sluice");
  response_.set(http::field::content_type, answer.type);
  response_.set(http::field::cache_control, "no-store");
  response_.set("X-Content-Type-Options", "nosniff");
  response_.set("Referrer-Policy", "no-referrer");
  response_.set("Content-Security-Policy", answer.policy);
  if (answer.status == 405) response_.set(http::field::allow, "GET, HEAD");
  response_.keep_alive(!last_);
  response_.body() = std::move(answer.body);
  response_.prepare_payload();
  serializer_.emplace(response_);
  stream_.expires_after(std::chrono::nanoseconds(options_.answer_timeout));
  auto next = [self = shared_from_this()](const boost::system::error_code& error, size_t) {
    if (error) return self->close();
    if (!self->last_) return self->read();
    boost::system::error_code ignored;
    self->stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
    self->stream_.expires_after(kSeeOffTime);
    self->see_off();
  };
  if (head_) {
    http::async_write_header(stream_, *serializer_, std::move(next));
  } else {
    http::async_write(stream_, *serializer_, std::move(next));
  }
}

// Who is closed with bytes on their way here hears of a reset, and may lose the answer to it.
void HttpConnection::see_off() {
  silent_ = true;
  buffer_.clear();
  stream_.async_read_some(buffer_.prepare(kSeeOffPiece),
                          [self = shared_from_this()](const boost::system::error_code& error, size_t bytes) {
                            self->seen_off_ += bytes;
                            if (error || self->seen_off_ > kSeeOffBytes) return self->close();
                            self->see_off();
                          });
}

}  // namespace sluice::reducer::admin
