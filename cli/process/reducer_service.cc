#include "cli/process/reducer_service.h"

#include <functional>
#include <string>
#include <utility>

namespace sluice::cli {

using reducer::Reducer;
using reducer::admin::HttpServer;

Result<std::unique_ptr<ReducerService>> ReducerService::start(
    const reducer::ReducerOptions& options, const std::optional<reducer::admin::HttpOptions>& http) {
  std::unique_ptr<HttpServer> server;
  if (http) {
    // Bound first, because no worker may reach a reducer that ends at once since its HTTP port is in use.
    // Options that no port would help are reported before a port in use, which may become free.
    if (auto checked = reducer::check_options(options); !checked)
      return tl::unexpected(std::move(checked.error()));
    auto bound = HttpServer::bind(*http, options.listen_host);
    if (!bound) return tl::unexpected(std::move(bound.error()));
    server = std::move(*bound);
  }
  auto started = Reducer::start(options);
  if (!started) return tl::unexpected(std::move(started.error()));
  std::unique_ptr<ReducerService> service(new ReducerService(std::move(*started), std::move(server)));
  if (service->http_) {
    service->http_->start([&reducer = service->reducer()](std::function<void(std::string)> reply) {
      reducer.request_status(std::move(reply));
    });
  }
  return service;
}

ReducerService::~ReducerService() {
  reducer_->stop();
  (void)reducer_->wait();  // no reply to the HTTP server can follow
}

}  // namespace sluice::cli
