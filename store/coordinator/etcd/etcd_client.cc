#include "store/coordinator/etcd/etcd_client.h"

#include <algorithm>

#include "config/json.h"
#include "core/clock.h"
#include "store/coordinator/coordinator.h"
#include "store/coordinator/etcd/json_answer.h"

namespace sluice::store::etcd {
namespace {

// Codes of gRPC.
constexpr int64_t kCanceled = 1, kDeadlineExceeded = 4, kNotFound = 5, kPermissionDenied = 7,
                  kOutOfRange = 11, kUnavailable = 14, kUnauthenticated = 16;

// is_unavailable() for a server without a leader.
Error error_of_refusal(int64_t grpc_code, const std::string& text) {
  const bool is_unavailable =
      grpc_code == kUnavailable || grpc_code == kDeadlineExceeded || grpc_code == kCanceled;
  const bool is_denied = grpc_code == kUnauthenticated || grpc_code == kPermissionDenied;
  return {is_unavailable ? Errc::kReset
          : is_denied    ? Errc::kUnauthenticated
                         : Errc::kSystem,
          "request refused: " + (text.empty() ? "gRPC code " + std::to_string(grpc_code) : text)};
}

Result<EtcdClient::Answer> read_answer(const HttpAnswer& answer) {
  auto body = parse_object(answer.body);
  if (!body)
    return fail(Errc::kBadField, "HTTP status " + std::to_string(answer.status) +
                                     " without a JSON object; expected the JSON gateway of etcd v3");
  // The renewal of a lease is a stream, which puts each message into "result".
  if (const nlohmann::json* const result = member(*body, "result");
      result != nullptr && result->is_object()) {
    nlohmann::json inner = *result;
    *body = std::move(inner);
  }
  if (const auto refusal = refusal_of(*body)) {
    if (refusal->code == kNotFound)
      return EtcdClient::Answer{EtcdClient::Verdict::kNotFound, std::move(*body), {}};
    if (refusal->code == kOutOfRange)
      return EtcdClient::Answer{EtcdClient::Verdict::kCompacted, std::move(*body), {}};
    return tl::unexpected(error_of_refusal(refusal->code, refusal->text));
  }
  if (answer.status != 200)
    return fail(Errc::kBadField, "HTTP status " + std::to_string(answer.status) + " without an error text");
  return EtcdClient::Answer{EtcdClient::Verdict::kDone, std::move(*body), {}};
}

}  // namespace

EtcdClient::EtcdClient(const EtcdOptions& options) : request_timeout_(options.request_timeout) {
  for (const config::Endpoint& endpoint : options.endpoints)
    endpoints_.push_back(std::make_unique<EtcdEndpoint>(endpoint));
}

void EtcdClient::report_failure(const EtcdEndpoint& endpoint) noexcept {
  size_t failed = current_.load();
  if (endpoints_[failed].get() == &endpoint)  // otherwise another thread has changed the server already
    current_.compare_exchange_strong(failed, (failed + 1) % endpoints_.size());
}

Result<EtcdClient::Answer> EtcdClient::call(const std::string& path, const nlohmann::json& body,
                                            Repeat repeat) {
  const std::string text = config::json_text(body);
  const Nanos deadline = monotonic_now() + request_timeout_;
  const size_t first = current_.load();
  Error all{Errc::kReset, ""};
  for (size_t i = 0; i < endpoints_.size(); ++i) {
    EtcdEndpoint& endpoint = *endpoints_[(first + i) % endpoints_.size()];
    // One silent server must not use up all of the time. A request that is sent only once may.
    const Nanos now = monotonic_now();
    const Nanos share = now + std::max<Nanos>(deadline - now, 0) / static_cast<Nanos>(endpoints_.size() - i);
    auto answer = try_one(endpoint, path, text, share, repeat == Repeat::kSafe ? share : deadline, repeat);
    if (answer) {
      answer->server = endpoint.name();
      return std::move(*answer);
    }
    const Failure& failure = answer.error();
    if (i == 0 || (is_unavailable(failure.error) && !is_unavailable(all))) all.code = failure.error.code;
    all.text += (all.text.empty() ? "" : "; ") + endpoint.name() + ": " + failure.error.text;
    const bool can_retry = is_unavailable(failure.error) || failure.error.code == Errc::kBadField;
    if (can_retry) report_failure(endpoint);
    if (!can_retry || (repeat == Repeat::kOnce && failure.may_be_done)) break;
  }
  return tl::unexpected(std::move(all));
}

tl::expected<EtcdClient::Answer, EtcdClient::Failure> EtcdClient::try_one(EtcdEndpoint& endpoint,
                                                                          const std::string& path,
                                                                          const std::string& text,
                                                                          Nanos connect_by, Nanos answer_by,
                                                                          Repeat repeat) {
  for (;;) {
    std::unique_ptr<HttpConnection> connection = endpoint.take_idle();
    const bool is_new = connection == nullptr;
    if (is_new) {
      connection = std::make_unique<HttpConnection>(endpoint.address());
      if (auto connected = endpoint.connect(*connection, connect_by); !connected)
        return tl::unexpected(Failure{std::move(connected.error()), false});
    }
    auto answer = connection->post(path, text, answer_by);
    if (!answer) {
      // The server may have closed an idle connection at this moment.
      if (!is_new && repeat == Repeat::kSafe && answer.error().code == Errc::kReset) {
        endpoint.drop_idle();
        continue;
      }
      return tl::unexpected(Failure{std::move(answer.error()), true});
    }
    auto read = read_answer(*answer);
    if (!read) return tl::unexpected(Failure{std::move(read.error()), true});
    endpoint.put_idle(std::move(connection));
    return std::move(*read);
  }
}

}  // namespace sluice::store::etcd
