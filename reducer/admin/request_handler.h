// Class RequestHandler makes the response to a request path. It does no network I/O.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace sluice::reducer::admin {

struct HttpResponse {
  unsigned status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
  std::string policy = "default-src 'none'; frame-ancestors 'none'";  // Content-Security-Policy
};

// A plain text response with `text` as its only line.
[[nodiscard]] HttpResponse error_response(unsigned status, std::string_view text);

class RequestHandler {
 public:
  RequestHandler(std::map<std::string, std::string> build, std::string data_host);

  // True if handle() needs the reducer's status for this path.
  [[nodiscard]] static bool needs_status(std::string_view path) noexcept;
  // `status` is the reducer's status as JSON; null if it is not needed or not available.
  [[nodiscard]] HttpResponse handle(std::string_view path, const std::string* status) const;

 private:
  const std::map<std::string, std::string> build_;
  const std::string data_host_;
  const HttpResponse page_;
};

}  // namespace sluice::reducer::admin
