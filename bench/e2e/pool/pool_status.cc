#include "bench/e2e/pool/pool_status.h"

#include <fmt/format.h>

#include "bench/e2e/process/exit_codes.h"
#include "config/json.h"
#include "core/clock.h"
#include "wire/messages.h"

namespace sluice::bench {
namespace {

constexpr Nanos kUsageTimeout = 5 * kSecond;

}  // namespace

Result<StatusAnswer> request_status(const config::Endpoint& reducer, const engine::Identity& identity,
                                    wire::Purpose purpose, Nanos timeout) {
  const Nanos deadline = monotonic_now() + timeout;
  auto socket = engine::connect_once(reducer, identity, deadline);
  if (!socket) return add_context(engine::reducer_name(reducer), socket.error());
  auto handshake = engine::perform_handshake(std::move(*socket), reducer, engine::reducer_name(reducer),
                                             identity, purpose, 0, 0, deadline);
  if (!handshake) return tl::unexpected<Error>(handshake.error());
  wire::StatusQuery query;
  query.mac = engine::client_proof(*handshake, 0);
  auto reply = engine::send_request<wire::StatusReply>(*handshake, query, deadline);
  if (!reply) return tl::unexpected<Error>(reply.error());
  return StatusAnswer{.welcome = std::move(handshake->welcome), .json = std::move(reply->json)};
}

engine::Identity identity_of_process() {
  engine::Identity identity;
  if (const auto read = engine::read_credentials({}, identity); !read)
    throw Failure(kExitConfig, read.error().text);
  return identity;
}

Result<std::string> query_status(const config::Endpoint& reducer, const engine::Identity& identity,
                                 Nanos timeout) {
  auto answer = request_status(reducer, identity, wire::Purpose::kStatus, timeout);
  if (!answer) return tl::unexpected(std::move(answer.error()));
  return std::move(answer->json);
}

Result<PoolUsage> query_usage(const std::vector<config::Endpoint>& pool, const engine::Identity& identity,
                              Nanos timeout) {
  PoolUsage usage;
  for (const config::Endpoint& reducer : pool) {
    auto text = query_status(reducer, identity, timeout);
    if (!text) return tl::unexpected<Error>(text.error());
    try {
      const auto json = config::parse_json(*text);
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
  if (const auto usage = query_usage(pool_, identity_, kUsageTimeout)) before_ = *usage;
}

double PoolCpuMeter::seconds_per_gb() const {
  if (!before_) return -1;
  const auto after = query_usage(pool_, identity_, kUsageTimeout);
  if (!after || after->bytes_received <= before_->bytes_received) return -1;
  return (after->cpu_seconds - before_->cpu_seconds) /
         ((after->bytes_received - before_->bytes_received) * 1e-9);
}

}  // namespace sluice::bench
