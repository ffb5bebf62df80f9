// One client: a request at a time, checked, answered, until it goes or its time is over. Of the server's
// thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "core/units.h"
#include "reducer/admin/answers.h"
#include "reducer/admin/beast.h"
#include "reducer/admin/http_server.h"
#include "reducer/admin/status_feed.h"

namespace sluice::reducer::admin {

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  // `options`, `answers` and `status` outlive it; `gone` is told once.
  HttpConnection(asio::ip::tcp::socket socket, const HttpOptions& options, const Answers& answers,
                 StatusFeed& status, std::function<void(HttpConnection&)> gone);
  ~HttpConnection();

  void start() { read(); }
  void close() noexcept;
  // It owes a request; else it is being answered.
  [[nodiscard]] bool silent() const noexcept { return silent_; }
  [[nodiscard]] Nanos since() const noexcept { return since_; }

 private:
  void read();
  void was_read(const boost::system::error_code& error);
  void respond(Answer answer);
  void see_off();

  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::empty_body>> parser_;
  http::response<http::string_body> response_;
  std::optional<http::response_serializer<http::string_body>> serializer_;
  const HttpOptions& options_;
  const Answers& answers_;
  StatusFeed& status_;
  const std::function<void(HttpConnection&)> gone_;
  bool silent_ = true;
  Nanos since_ = 0;
  bool head_ = false;  // asked for without the body
  bool last_ = false;  // closes with this answer
  size_t seen_off_ = 0;
};

}  // namespace sluice::reducer::admin
