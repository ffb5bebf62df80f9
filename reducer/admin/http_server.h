// Class HttpServer serves a reducer's health, metrics, status and status page over HTTP, for its operators.
//
// It has one thread, apart from the control loop and the lanes, and gets the status through a StatusSource.
// It is read-only and does not authenticate clients (docs/guides/secure.md). Each client resource is bounded:
// the number of connections (a new one replaces the one that has been silent longest), the size of a request,
// and the time for a request and for its response.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "core/result.h"
#include "core/units.h"

namespace sluice::reducer::admin {

struct HttpOptions {
  std::string host;   // empty: all addresses
  uint16_t port = 0;  // 0: chosen by the OS
  // Requests for another host name than `host` or localhost are refused: a page of the Internet could make a
  // browser here ask, under a name that it resolves to this host.
  bool only_local_names = false;
  // Labels of sluice_build_info besides the version: revision, compiler, simd.
  std::map<std::string, std::string> build = {};

  uint32_t max_connections = 64;
  uint32_t max_header_bytes = 8192;
  Nanos request_timeout = 5 * kSecond;        // from connect or the last response to the end of the request
  Nanos response_timeout = 5 * kSecond;       // for the client to read the response
  Nanos status_timeout = 2 * kSecond;         // for the reducer to report its status
  Nanos status_max_age = 200 * kMillisecond;  // a younger status is reused
};

// Requests the reducer's status as JSON. Returns at once; calls the argument once, on any thread, or never.
using StatusSource = std::function<void(std::function<void(std::string)>)>;

class HttpServer {
 public:
  // Ends the thread. The status source must not call back any more.
  virtual ~HttpServer() = default;

  // Binds the port; the server answers after start(). Errors: kAddressInUse, kSystem.
  // `data_host` is the reducer's listen address, whose network interface the metrics show.
  [[nodiscard]] static Result<std::unique_ptr<HttpServer>> bind(const HttpOptions& options,
                                                                const std::string& data_host);
  virtual void start(StatusSource source) = 0;
  [[nodiscard]] virtual uint16_t port() const noexcept = 0;
};

}  // namespace sluice::reducer::admin
