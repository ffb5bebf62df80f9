// Class HttpConnection is one HTTP/1.1 connection to an etcd server, for one request after another.
//
// Every call has a deadline. One thread at a time. After an error the connection is closed. Errors: kTimeout,
// kReset (refused, closed, or no HTTP), kBadField (an answer over its limit).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "store/coordinator/etcd/event_loop.h"

namespace sluice::store::etcd {

struct HttpAnswer {
  unsigned status = 0;
  std::string body;
};

class HttpConnection {
 public:
  static constexpr size_t kMaxAnswerBytes = 24 * kMiB;
  static constexpr uint32_t kMaxHeaderBytes = 16 * kKiB;

  // `host` is for the Host header. The loop must outlive the connection.
  HttpConnection(EventLoop& loop, std::string host)
      : loop_(loop), socket_(loop.io()), host_(std::move(host)) {}
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;
  ~HttpConnection() { close(); }

  // Tries the addresses in turn, each for an equal share of the time.
  [[nodiscard]] Result<void> connect(const std::vector<Tcp::endpoint>& addresses, Nanos deadline);
  // True if the server has neither closed the connection nor sent anything unasked.
  [[nodiscard]] bool is_idle();

  // Sends POST `path` with a JSON text, and reads the answer.
  [[nodiscard]] Result<HttpAnswer> post(const std::string& path, std::string json, Nanos deadline);

 private:
  using Parser = http::response_parser<http::string_body>;
  // Waits for the pending operation; closes the connection if it failed or the deadline passed.
  [[nodiscard]] Result<void> finish(Nanos deadline);
  // Starts to read the header, or some bytes of the body.
  void read_more();
  [[nodiscard]] Result<void> check_length();
  void begin() noexcept;
  void close() noexcept;

  EventLoop& loop_;
  Tcp::socket socket_;
  const std::string host_;
  beast::flat_buffer buffer_{size_t{64} * kKiB};
  http::request<http::string_body> request_;
  std::optional<Parser> parser_;
  // The state of the operation in progress.
  bool is_pending_ = false;
  bool is_done_ = false;
  boost::system::error_code error_;
};

}  // namespace sluice::store::etcd
