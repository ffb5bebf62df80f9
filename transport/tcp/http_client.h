// Class HttpClient sends requests on one HTTP/1.1 connection, one after another. Each call blocks until the
// answer or a deadline. One thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/result.h"
#include "core/units.h"
#include "transport/tcp/socket.h"

namespace sluice::transport::tcp {

struct HttpAnswer {
  unsigned status = 0;
  std::string body;
};

struct HttpError {
  enum class Kind : uint8_t {
    kTimeout,
    kClosed,       // before the answer was complete
    kHeaderLimit,  // the header of the answer is longer than the limit
    kBodyLimit,
    kMalformed,  // no HTTP
    kSystem,     // of a socket call
  };
  Kind kind = Kind::kSystem;
  std::string text;
};

class HttpClient {
 public:
  struct Limits {
    uint32_t header_bytes = 8 * kKiB;
    uint64_t body_bytes = 64 * kKiB;
  };
  HttpClient() noexcept = default;
  HttpClient(Socket socket, const Limits& limits) noexcept : socket_(std::move(socket)), limits_(limits) {}

  // True if the server has neither closed the connection nor sent anything unasked.
  [[nodiscard]] bool is_idle() const noexcept;

  // Sends `request`, which has its header, and reads the answer. Closes the connection after an error, and
  // when the server will close it.
  [[nodiscard]] tl::expected<HttpAnswer, HttpError> call(std::string_view request, Nanos deadline);

 private:
  Socket socket_;
  Limits limits_;
  std::string received_;  // and not yet parsed
};

}  // namespace sluice::transport::tcp
