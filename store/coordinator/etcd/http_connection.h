// Class HttpConnection is one HTTP/1.1 connection to an etcd server, for one request after another.
//
// Every call has a deadline. One thread at a time. After an error the connection is closed. Errors: kTimeout,
// kReset (refused, closed, or no HTTP), kBadField (an answer over its limit).
#pragma once

#include <string>
#include <vector>

#include "core/result.h"
#include "core/units.h"
#include "store/coordinator/etcd/beast.h"

namespace sluice::store::etcd {

struct HttpAnswer {
  unsigned status = 0;
  std::string body;
};

class HttpConnection {
 public:
  static constexpr size_t kMaxAnswerBytes = 24 * kMiB;
  static constexpr uint32_t kMaxHeaderBytes = 16 * kKiB;

  // `host` is for the Host header.
  explicit HttpConnection(std::string host) : host_(std::move(host)) {}

  // Tries the addresses in turn, each for an equal share of the time.
  [[nodiscard]] Result<void> connect(const std::vector<Tcp::endpoint>& addresses, Nanos deadline);
  // True if the server has neither closed the connection nor sent anything unasked.
  [[nodiscard]] bool is_idle();

  // Sends POST `path` with a JSON text, and reads the answer.
  [[nodiscard]] Result<HttpAnswer> post(const std::string& path, std::string json, Nanos deadline);

 private:
  // Runs one operation, which `start` begins with the handler that it gets, to its end or to the deadline.
  // Closes the connection if it failed.
  template <typename Start>
  [[nodiscard]] Result<void> run(Nanos deadline, Start start);
  void close() noexcept;

  asio::io_context io_{1};
  beast::tcp_stream stream_{io_};
  const std::string host_;
  beast::flat_buffer buffer_{size_t{64} * kKiB};
};

}  // namespace sluice::store::etcd
