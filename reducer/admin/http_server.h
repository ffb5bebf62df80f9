// What a reducer shows over HTTP to who operates it: health, metrics, its status, a page. One thread, apart
// from the conductor and the lanes; it reads nothing that a lane writes but what the conductor told it.
//
// Whoever reaches the port may ask, and nothing can be changed by it (docs/security.md). Clients are bounded:
// so many connections, of which a new one takes the place of the one that has been silent longest; so large a
// request; so much time for it and for its answer.
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
  // What sluice_build_info says beside the version: revision, compiler, simd.
  std::map<std::string, std::string> build = {};

  uint32_t most_connections = 64;
  uint32_t most_header_bytes = 8192;
  Nanos request_timeout = 5 * kSecond;    // from connect, or the answer before, to the end of a request
  Nanos answer_timeout = 5 * kSecond;     // for the client to take it
  Nanos status_timeout = 2 * kSecond;     // for the reducer to say how it is
  Nanos status_age = 200 * kMillisecond;  // an answer this old is given again
};

// Asks the reducer for its status as JSON; calls back once, on any thread, or never. Must return at once.
using AskStatus = std::function<void(std::function<void(std::string)>)>;

class HttpServer {
 public:
  virtual ~HttpServer() = default;  // ends the thread; whoever may still call back has ended before

  // Binds; answers when start() is called. kSystem with "address already in use" in the text when taken.
  // `data_host`: where the reducer listens for workers, whose network interface is shown.
  [[nodiscard]] static Result<std::unique_ptr<HttpServer>> bind(const HttpOptions& options,
                                                                const std::string& data_host);
  virtual void start(AskStatus ask) = 0;
  [[nodiscard]] virtual uint16_t port() const noexcept = 0;
};

}  // namespace sluice::reducer::admin
