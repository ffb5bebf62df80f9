#include "reducer/admin/request_handler.h"

#include <algorithm>
#include <span>
#include <utility>

#include "config/json.h"
#include "core/assert.h"
#include "core/text_encoding.h"
#include "reducer/admin/host_facts.h"
#include "reducer/admin/metrics.h"
#include "wire/sha256.h"

namespace sluice::reducer::admin {

// The files of reducer/admin/page/, which the build embeds (sluice_embed_text).
extern const std::string_view kPageDocument, kPageStyle, kPageScript;

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

// The hash that Content-Security-Policy expects of the bytes between the tags.
std::string hash_of(std::string_view text) {
  const wire::Digest digest = wire::sha256(std::as_bytes(std::span(text)));
  return "'sha256-" + base64_of({reinterpret_cast<const char*>(digest.data()), digest.size()}) + "'";
}

void substitute(std::string& document, std::string_view placeholder, std::string_view part) {
  const size_t at = document.find(placeholder);
  SLUICE_ASSERT(at != std::string::npos);
  document.replace(at, placeholder.size(), part);
}

// The page at /. It loads nothing else. Its policy allows this script and this style, by their hashes, and
// requests to this server. So a name that a client chose cannot inject a script.
HttpResponse make_page() {
  std::string html(kPageDocument);
  substitute(html, "/*style*/", kPageStyle);
  substitute(html, "/*script*/", kPageScript);
  return {.type = "text/html; charset=utf-8",
          .body = std::move(html),
          .policy = "default-src 'none'; style-src " + hash_of(kPageStyle) + "; script-src " +
                    hash_of(kPageScript) +
                    "; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
                    "frame-ancestors 'none'"};
}

}  // namespace

RequestHandler::RequestHandler(std::map<std::string, std::string> build, std::string data_host)
    : build_(std::move(build)), data_host_(std::move(data_host)), page_(make_page()) {}

HttpResponse error_response(unsigned status, std::string_view text) {
  return {.status = status, .body = std::string(text) + '\n'};
}

bool RequestHandler::needs_status(std::string_view path) noexcept {
  return std::ranges::find(kStatusPaths, path) != std::end(kStatusPaths);
}

HttpResponse RequestHandler::handle(std::string_view path, const std::string* status) const {
  // That the server answers is all that these probes check.
  if (path == "/livez" || path == "/healthz" || path == "/startupz") return text("ok\n");
  if (path == "/") return page_;
  if (!needs_status(path)) {
    return error_response(
        404, "path not found; paths are / /status /metrics /livez /readyz /startupz and /healthz");
  }
  if (status == nullptr) return error_response(503, "the reducer did not report its status in time");
  if (path == "/status") return {.type = "application/json", .body = *status + '\n'};
  const auto parsed = config::parse_json(*status);
  if (path == "/readyz") return readiness(parsed);
  auto metrics = metrics_text(parsed, build_, host_facts(data_host_));
  if (!metrics) {
    const unsigned code = metrics.error().code == Errc::kUnsupported ? 501 : 500;
    return error_response(code, metrics.error().text);
  }
  return {.type = "text/plain; version=0.0.4; charset=utf-8", .body = std::move(*metrics)};
}

}  // namespace sluice::reducer::admin
