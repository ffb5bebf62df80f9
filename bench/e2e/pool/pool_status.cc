#include "bench/e2e/pool/pool_status.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "config/secret_file.h"
#include "core/clock.h"
#include "gpu_client/engine/join/handshake.h"
#include "wire/handshake.h"
#include "wire/messages.h"

namespace sluice::bench {
namespace {

constexpr Nanos kUsageTimeout = 5 * kSecond;

Result<std::string> query_status_until(const config::Endpoint& reducer, const Credentials& credentials,
                                       Nanos deadline) {
  engine::Identity identity;
  identity.job = credentials.job;
  identity.token = credentials.token;
  auto tls = engine::read_tls_settings();
  if (!tls) return tl::unexpected<Error>(tls.error());
  identity.tls = std::move(*tls);
  auto socket = engine::connect_once(reducer, identity, deadline);
  if (!socket) return add_context(engine::reducer_name(reducer), socket.error());
  auto handshake = engine::perform_handshake(std::move(*socket), reducer, engine::reducer_name(reducer),
                                             identity, wire::Purpose::kStatus, 0, 0, deadline);
  if (!handshake) return tl::unexpected<Error>(handshake.error());
  wire::StatusQuery query;
  query.mac = engine::client_proof(*handshake, identity, 0);
  auto reply = engine::send_request<wire::StatusReply>(*handshake, query, deadline);
  if (!reply) return tl::unexpected<Error>(reply.error());
  return std::move(reply->json);
}

}  // namespace

Result<Credentials> read_credentials(const std::string& key_file, const std::string& token_file,
                                     const std::string& job) {
  Credentials credentials;
  if (!job.empty()) credentials.job = job;
  const std::string& path = token_file.empty() ? key_file : token_file;
  if (path.empty()) return credentials;
  auto file = config::read_secret_file(path);
  if (!file) return tl::unexpected<Error>(file.error());
  credentials.token = token_file.empty()
                          ? wire::job_token(std::as_bytes(std::span(file->secret)), credentials.job)
                          : file->secret;
  return credentials;
}

Result<std::string> query_status(const config::Endpoint& reducer, const Credentials& credentials,
                                 Nanos timeout) {
  return query_status_until(reducer, credentials, monotonic_now() + timeout);
}

Result<PoolUsage> query_usage(const std::vector<config::Endpoint>& pool, const Credentials& credentials,
                              Nanos timeout) {
  PoolUsage usage;
  for (const config::Endpoint& reducer : pool) {
    auto text = query_status(reducer, credentials, timeout);
    if (!text) return tl::unexpected<Error>(text.error());
    try {
      const auto json = nlohmann::json::parse(*text);
      usage.cpu_seconds +=
          json.at("cpu").at("user_seconds").get<double>() + json.at("cpu").at("system_seconds").get<double>();
      usage.bytes_received += json.at("data").at("bytes_folded").get<double>();
    } catch (const nlohmann::json::exception& e) {
      return fail(Errc::kUnsupported, fmt::format("reducer {}: cannot parse the status: {}",
                                                  config::to_string(reducer), e.what()));
    }
  }
  return usage;
}

void PoolCpuMeter::start() {
  before_.reset();
  if (const auto usage = query_usage(pool_, credentials_, kUsageTimeout)) before_ = *usage;
}

double PoolCpuMeter::seconds_per_gb() const {
  if (!before_) return -1;
  const auto after = query_usage(pool_, credentials_, kUsageTimeout);
  if (!after || after->bytes_received <= before_->bytes_received) return -1;
  return (after->cpu_seconds - before_->cpu_seconds) /
         ((after->bytes_received - before_->bytes_received) * 1e-9);
}

}  // namespace sluice::bench
