// Class HttpConnection is one HTTP/1.1 connection to an etcd server, for one request after another.
//
// Every call has a deadline. One thread at a time. After an error the connection is closed. Errors: kTimeout,
// kReset (refused, closed, or no HTTP), kBadField (an answer over its limit).
#pragma once

#include <string>

#include "core/result.h"
#include "core/units.h"
#include "store/coordinator/etcd/address_lookup.h"
#include "transport/tcp/http_client.h"

namespace sluice::store::etcd {

using transport::tcp::HttpAnswer;

class HttpConnection {
 public:
  static constexpr size_t kMaxAnswerBytes = 24 * kMiB;
  static constexpr uint32_t kMaxHeaderBytes = 16 * kKiB;

  // `host` is for the Host header.
  explicit HttpConnection(std::string host) : host_(std::move(host)) {}

  // Tries the addresses in turn, each for an equal share of the time.
  [[nodiscard]] Result<void> connect(const AddressList& addresses, Nanos deadline);
  [[nodiscard]] bool is_idle() const noexcept { return client_.is_idle(); }

  // Sends POST `path` with a JSON text, and reads the answer.
  [[nodiscard]] Result<HttpAnswer> post(const std::string& path, const std::string& json, Nanos deadline);

 private:
  const std::string host_;
  transport::tcp::HttpClient client_;
};

}  // namespace sluice::store::etcd
