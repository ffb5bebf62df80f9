// Class ReducerService runs a reducer together with its HTTP server for `sluice reducer`.
//
// The reducer is a library that knows nothing of HTTP (docs/design/adr/0014-reducer-as-a-library.md), so this
// class connects both and ends them in the order that they need: the server answers until the reducer has
// ended, and ends before the reducer is destroyed. One thread; reducer() as its methods allow.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "core/result.h"
#include "reducer/admin/http_server.h"
#include "reducer/reducer.h"

namespace sluice::cli {

class ReducerService {
 public:
  // Binds the HTTP port, if there are options for it, then starts the reducer. Errors: those of
  // Reducer::start() and HttpServer::bind(); nothing runs after an error.
  [[nodiscard]] static Result<std::unique_ptr<ReducerService>> start(
      const reducer::ReducerOptions& options, const std::optional<reducer::admin::HttpOptions>& http);
  ReducerService(const ReducerService&) = delete;
  ReducerService& operator=(const ReducerService&) = delete;
  ~ReducerService();  // stops both

  [[nodiscard]] reducer::Reducer& reducer() noexcept { return *reducer_; }
  [[nodiscard]] uint16_t http_port() const noexcept {  // 0: no HTTP port
    return http_ ? http_->port() : uint16_t{0};
  }

 private:
  ReducerService(std::unique_ptr<reducer::Reducer> reducer,
                 std::unique_ptr<reducer::admin::HttpServer> http) noexcept
      : reducer_(std::move(reducer)), http_(std::move(http)) {}

  const std::unique_ptr<reducer::Reducer> reducer_;
  const std::unique_ptr<reducer::admin::HttpServer> http_;  // destroyed first
};

}  // namespace sluice::cli
