#include "gpu_client/store/store_connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>

#include "core/clock.h"
#include "gpu_client/engine/base/peer_error.h"
#include "store/model/model_json.h"
#include "transport/tcp/socket_options.h"

namespace sluice::store_client {
namespace {

constexpr Nanos kConnectTime = 3 * kSecond;  // of one attempt, so that the other reducers are tried too
constexpr Nanos kHandshakeTime = 10 * kSecond;
constexpr int kUnsentBytes = 256 * 1024;
// The machine of a reducer may be gone without a word. While the client waits for an answer the kernel asks
// it after some seconds, and the connection ends when data or questions are not acknowledged for kSilence. So
// does a body that makes no progress.
constexpr int kKeepaliveIdleS = 3, kKeepaliveIntervalS = 2;
constexpr int kSilenceMs = 10'000;

// Options of a connection on which requests and answers alternate. Without them it works, too.
void set_options(int fd) noexcept {
  using transport::tcp::set_option;
  // What waits in the kernel is sent in no order that this side can still choose.
  static_cast<void>(set_option(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, kUnsentBytes));
  transport::tcp::enable_keepalive(fd, kKeepaliveIdleS, kKeepaliveIntervalS);
  static_cast<void>(set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, kSilenceMs));
}

}  // namespace

bool is_retryable(Errc code) noexcept {
  switch (code) {
    case Errc::kClosed:
    case Errc::kReset:
    case Errc::kTimeout:
    case Errc::kBadView:         // the version is no longer kept
    case Errc::kUnknownSession:  // another reducer owns the shard by now
    case Errc::kDraining:
    case Errc::kTooMany:
    case Errc::kPeerLost:
    case Errc::kReducerLost:
    case Errc::kShutdown: return true;
    default: return false;
  }
}

Result<StoreConnection> StoreConnection::open(const config::Endpoint& reducer,
                                              const engine::Identity& identity, Nanos deadline) {
  const std::string name = engine::reducer_name(reducer);
  const Nanos now = monotonic_now();
  auto socket = engine::connect_once(reducer, identity, std::min(deadline, now + kConnectTime));
  if (!socket) {
    // A host name may become known, and a process start to listen.
    const bool is_final = socket.error().code == Errc::kInvalidArgument;
    return fail(is_final ? Errc::kInvalidArgument : Errc::kReducerLost, name + ": " + socket.error().text);
  }
  const Nanos until = std::min(deadline, monotonic_now() + kHandshakeTime);
  auto handshake = engine::perform_handshake(std::move(*socket), reducer, name, identity,
                                             wire::Purpose::kStore, 0, 0, until);
  if (!handshake) {
    Error error = handshake.error();
    // Reducers of releases without models close the connection at the unknown purpose; so does the end of one
    // with models.
    if (error.code == Errc::kReducerLost) {
      error.text += "; a reducer of a release without models does so";
    } else if (error.code == Errc::kTimeout) {
      error.code = Errc::kReducerLost;
    } else if (error.code == Errc::kAborted) {
      error.code = Errc::kUnsupported;  // of REFUSED, where it is a code of the reducer alone
    }
    return tl::unexpected(std::move(error));
  }
  if ((handshake->welcome.features & wire::kFeatureStore) == 0)
    return fail(Errc::kUnsupported, name + ": keeps no models; start it with --state");
  const wire::StoreRequest request{.mac = engine::client_proof(*handshake, 0)};
  if (auto ready = engine::send_request<wire::StoreReady>(*handshake, request, until); !ready) {
    Error error = ready.error();
    if (error.code == Errc::kTimeout) error.code = Errc::kReducerLost;
    return tl::unexpected(std::move(error));
  }
  StoreConnection out;
  out.reducer_ = reducer;
  out.name_ = name;
  set_options(handshake->socket.fd());
  out.channel_ = MessageChannel(std::move(handshake->socket));
  return out;
}

tl::unexpected<Error> StoreConnection::give_up(const std::string& doing) {
  close();
  return fail(Errc::kReducerLost, name_ + ": no progress while " + doing);
}

tl::unexpected<Error> StoreConnection::malformed(Errc code, const std::string& text) {
  close();
  return fail(code, name_ + ": malformed answer: " + text);
}

tl::unexpected<Error> StoreConnection::peer_error(Errc code, const std::string& text) const {
  return fail(engine::code_from_peer(code), name_ + ": " + engine::replace_control_characters(text));
}

Result<void> StoreConnection::check(Status status, const std::string& doing) {
  if (status.ok()) return {};
  if (wire::Failed failed; status == Errc::kAborted && channel_.decode(failed).ok())
    return peer_error(failed.code, failed.text);
  if (is_bad_frame(status.code()))
    return malformed(status.code(), std::string(to_string(status.code())) + " while " + doing);
  if (status.code() == Errc::kTimeout) return give_up(doing);
  const bool is_closed = status.code() == Errc::kClosed;
  close();
  return fail(
      Errc::kReducerLost,
      name_ + (is_closed ? ": connection closed by the reducer" : ": connection reset") + " while " + doing);
}

Result<void> StoreConnection::receive_frame(wire::FrameType expected, Nanos deadline,
                                            const std::string& doing) {
  if (!valid()) return fail(Errc::kReducerLost, name_ + ": connection is closed");
  if (auto received = check(channel_.receive(deadline), doing); !received) return received;
  if (channel_.type() == expected) return {};
  if (channel_.type() == wire::FrameType::kFailed) {
    wire::Failed failed;
    if (auto decoded = check(channel_.decode(failed), doing); !decoded) return decoded;
    return peer_error(failed.code, failed.text);
  }
  if (channel_.type() == wire::FrameType::kRefused) {
    wire::Refused refused;
    if (auto decoded = check(channel_.decode(refused), doing); !decoded) return decoded;
    close();
    return peer_error(refused.code, refused.text);
  }
  return check(Errc::kUnexpectedMessage, doing);
}

Result<std::string> StoreConnection::query(wire::ModelQueryKind kind, const std::string& name,
                                           const std::string& body, Nanos deadline) {
  SLUICE_RETURN_IF_ERROR(send(wire::ModelQuery{.kind = kind, .name = name, .bytes = body.size()}, deadline));
  const auto bytes = std::as_bytes(std::span(body));
  SLUICE_RETURN_IF_ERROR(check(channel_.send_body(bytes), "sending data"));
  SLUICE_ASSIGN_OR_RETURN(answer, receive<wire::ModelAnswer>(deadline));
  if (answer.bytes > store::kMaxModelText)
    return malformed(Errc::kBadLength, std::to_string(answer.bytes) + " bytes of JSON");
  std::string text(answer.bytes, '\0');
  SLUICE_RETURN_IF_ERROR(
      check(channel_.receive_body(std::as_writable_bytes(std::span(text))), "receiving data"));
  return text;
}

}  // namespace sluice::store_client
