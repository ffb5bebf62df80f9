#include "reducer/admin/request_handler.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "reducer/admin/host_facts.h"
#include "reducer/admin/metrics.h"

namespace sluice::reducer::admin {
namespace {

constexpr std::string_view kStatusPaths[] = {"/readyz", "/status", "/metrics"};

HttpResponse text(std::string body) {
  return {.body = std::move(body)};
}

// A reducer is ready if it accepts new sessions, even before the first worker: workers may wait for
// readiness.
HttpResponse readiness(const nlohmann::json& status) {
  if (!status.value("draining", false)) return text("ok\n");
  const auto open = status.value("/sessions/open"_json_pointer, uint64_t{0});
  return error_response(503,
                        "draining: " + std::to_string(open) + " sessions left, no new sessions accepted");
}

}  // namespace

HttpResponse error_response(unsigned status, std::string_view text) {
  return {.status = status, .body = std::string(text) + '\n'};
}

bool RequestHandler::needs_status(std::string_view path) noexcept {
  return std::ranges::find(kStatusPaths, path) != std::end(kStatusPaths);
}

HttpResponse RequestHandler::handle(std::string_view path, const std::string* status) const {
  // That the server answers is all that these probes check.
  if (path == "/livez" || path == "/healthz" || path == "/startupz") return text("ok\n");
  if (path == "/")
    return {.type = "text/html; charset=utf-8", .body = page_.html(), .policy = page_.policy()};
  if (!needs_status(path)) {
    return error_response(
        404, "path not found; paths are / /status /metrics /livez /readyz /startupz and /healthz");
  }
  if (status == nullptr) return error_response(503, "the reducer did not report its status in time");
  if (path == "/status") return {.type = "application/json", .body = *status + '\n'};
  const auto parsed = nlohmann::json::parse(*status, nullptr, false);
  if (path == "/readyz") return readiness(parsed);
  auto metrics = metrics_text(parsed, build_, host_facts(data_host_));
  if (!metrics) {
    const unsigned code = metrics.error().code == Errc::kUnsupported ? 501 : 500;
    return error_response(code, metrics.error().text);
  }
  return {.type = "text/plain; version=0.0.4; charset=utf-8", .body = std::move(*metrics)};
}

}  // namespace sluice::reducer::admin
