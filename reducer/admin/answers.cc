#include "reducer/admin/answers.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "reducer/admin/host_facts.h"
#include "reducer/admin/metrics.h"

namespace sluice::reducer::admin {
namespace {

constexpr std::string_view kNeedStatus[] = {"/readyz", "/status", "/metrics"};

Answer text(std::string words) {
  return {.body = std::move(words)};
}

// Ready is who takes new sessions; it says nothing of whether any worker has come, which may wait for this.
Answer readiness(const nlohmann::json& status) {
  if (!status.value("draining", false)) return text("ok\n");
  const auto open = status.value("/sessions/open"_json_pointer, uint64_t{0});
  return refusal(503, "draining: " + std::to_string(open) + " sessions to finish, no new ones are taken");
}

}  // namespace

Answer refusal(unsigned status, std::string_view words) {
  return {.status = status, .body = std::string(words) + '\n'};
}

bool Answers::needs_status(std::string_view path) noexcept {
  return std::ranges::find(kNeedStatus, path) != std::end(kNeedStatus);
}

Answer Answers::answer(std::string_view path, const std::string* status) const {
  // That this is answered is all that they ask.
  if (path == "/livez" || path == "/healthz" || path == "/startupz") return text("ok\n");
  if (path == "/")
    return {.type = "text/html; charset=utf-8", .body = page_.html(), .policy = page_.policy()};
  if (!needs_status(path)) {
    return refusal(404, "not here; there are / /status /metrics /livez /readyz /startupz and /healthz");
  }
  if (status == nullptr) return refusal(503, "the reducer does not say how it is");
  if (path == "/status") return {.type = "application/json", .body = *status + '\n'};
  const auto parsed = nlohmann::json::parse(*status, nullptr, false);
  if (path == "/readyz") return readiness(parsed);
  auto metrics = metrics_text(parsed, build_, host_facts(data_host_));
  if (!metrics) return refusal(metrics.error().code == Errc::kUnsupported ? 501 : 500, metrics.error().text);
  return {.type = "text/plain; version=0.0.4; charset=utf-8", .body = std::move(*metrics)};
}

}  // namespace sluice::reducer::admin
