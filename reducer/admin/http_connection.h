// Class HttpConnection serves one client: it reads, checks and answers one request at a time.
//
// HTTP thread only. Pending handlers own the object.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/units.h"
#include "reducer/admin/beast.h"
#include "reducer/admin/http_server.h"
#include "reducer/admin/request_handler.h"
#include "reducer/admin/status_cache.h"

namespace sluice::reducer::admin {

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  // `options`, `handler` and `status` must outlive the connection. The destructor calls `on_destroyed`.
  HttpConnection(StreamSocket socket, const HttpOptions& options, const RequestHandler& handler,
                 StatusCache& status, std::function<void(HttpConnection&)> on_destroyed);
  ~HttpConnection();

  void start() { read(); }
  void close() noexcept;
  // Waits for the client's request; otherwise a response is being made or sent.
  [[nodiscard]] bool is_awaiting_request() const noexcept { return is_awaiting_request_; }
  // When it began to wait or to respond.
  [[nodiscard]] Nanos since() const noexcept { return since_; }

 private:
  void read();
  void parse();
  void on_header(const boost::system::error_code& error);
  void respond(const HttpResponse& response);
  void write();
  void drain_before_close();
  // Closes the connection after `time`. Replaces an earlier time.
  void expires_after(Nanos time);

  StreamSocket socket_;
  Timer timer_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::empty_body>> parser_;
  std::string response_;
  size_t sent_ = 0;  // bytes of the response
  const HttpOptions& options_;
  const RequestHandler& handler_;
  StatusCache& status_;
  const std::function<void(HttpConnection&)> on_destroyed_;
  bool is_awaiting_request_ = true;
  Nanos since_ = 0;
  bool is_head_request_ = false;  // the response has no body
  bool closes_afterwards_ = false;
  size_t drained_bytes_ = 0;
};

}  // namespace sluice::reducer::admin
