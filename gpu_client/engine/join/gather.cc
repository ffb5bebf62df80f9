#include "gpu_client/engine/join/gather.h"

#include <sys/socket.h>

#include <string>
#include <utility>

#include "core/clock.h"
#include "gpu_client/engine/base/peer_error.h"
#include "transport/tcp/address.h"
#include "transport/tcp/link_rate.h"

namespace sluice::engine {
namespace {

// The reducer's clock decides who is late; its answer must have time to arrive.
constexpr Nanos kAnswerGrace = 5 * kSecond;
constexpr Nanos kRetry = 20 * kMillisecond;
constexpr Nanos kAbortTime = kSecond;

}  // namespace

Result<GatherConnection> GatherConnection::open(const config::Endpoint& reducer, const Identity& identity,
                                                bool in_worker, const Deadline& deadline) {
  auto handshake = connect_and_handshake(reducer, identity, wire::Purpose::kGather, 0, 0, deadline);
  const auto may_retry = [&] {
    const Errc code = handshake ? Errc::kOk : handshake.error().code;
    return in_worker && (code == Errc::kUnknownSession || code == Errc::kReducerLost) &&
           monotonic_now() + kRetry < deadline.time &&
           transport::tcp::sleep_until({monotonic_now() + kRetry, deadline.interrupt_fd}) == Errc::kTimeout;
  };
  while (may_retry()) {
    handshake = connect_and_handshake(reducer, identity, wire::Purpose::kGather, 0, 0, deadline);
  }
  if (!handshake) return tl::unexpected(handshake.error());
  if ((handshake->welcome.features & wire::kFeatureGather) == 0)
    return fail(Errc::kUnsupported, handshake->name + ": its version does not support co-located reducers");
  if (in_worker) handshake->worker = 0;
  return GatherConnection(std::move(*handshake), identity, deadline.interrupt_fd);
}

Result<std::vector<std::vector<uint8_t>>> GatherConnection::gather(uint8_t round, std::vector<uint8_t> data,
                                                                   Nanos timeout) {
  const Deadline deadline(monotonic_now() + timeout + kAnswerGrace, interrupt_fd_);
  const wire::Gather request{.round = round,
                             .timeout_ms = static_cast<uint32_t>(timeout / kMillisecond),
                             .data = std::move(data),
                             .mac = client_proof(handshake_, 0)};
  if (auto sent = send_frame(handshake_, wire::encode_message(request), deadline); !sent)
    return tl::unexpected(sent.error());
  std::vector<std::vector<uint8_t>> all;
  while (all.size() < identity_.ranks) {
    const auto body = receive_body(handshake_, wire::FrameType::kGathered, deadline);
    if (!body) return tl::unexpected(body.error());
    wire::Gathered part;
    const Status decoded = wire::decode_body(*body, part);
    size_t bytes = 0;
    for (const uint16_t size : part.sizes) bytes += size;
    if (!decoded.ok() || part.round != round || part.first_rank != all.size() || part.sizes.empty() ||
        part.sizes.size() > identity_.ranks - all.size() || bytes != part.data.size()) {
      return fail(decoded.ok() ? Errc::kBadField : decoded.code(), handshake_.name + ": malformed GATHERED");
    }
    auto next = part.data.begin();
    for (const uint16_t size : part.sizes) {
      all.emplace_back(next, next + size);
      next += size;
    }
  }
  return all;
}

Error GatherConnection::why_ended() {
  const auto body = receive_body(handshake_, wire::FrameType::kGathered, monotonic_now() + kAbortTime);
  return body ? Error{Errc::kUnexpectedMessage, handshake_.name + ": sends GATHERED unasked"} : body.error();
}

void GatherConnection::abort(const Error& cause) {
  wire::Abort abort;
  abort.code = code_for_peer(cause.code);
  abort.rank = identity_.rank;
  abort.text = cause.text;
  const Nanos deadline = monotonic_now() + kAbortTime;
  // The reducer closes when it has told the others.
  if (send_frame(handshake_, wire::encode_message(abort), deadline))
    static_cast<void>(receive_body(handshake_, wire::FrameType::kGathered, deadline));
}

std::string GatherConnection::local_address() const {
  return transport::tcp::local_host(handshake_.socket.fd());
}

std::string GatherConnection::peer_address() const {
  return transport::tcp::peer_host(handshake_.socket.fd());
}

uint64_t GatherConnection::link_rate() const {
  sockaddr_storage local{};
  socklen_t size = sizeof local;
  if (::getsockname(handshake_.socket.fd(), reinterpret_cast<sockaddr*>(&local), &size) != 0) return 0;
  return transport::tcp::link_rate(local);
}

}  // namespace sluice::engine
