#include "bench/e2e/pool_status.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "config/secret_file.h"
#include "core/clock.h"
#include "transport/tcp/socket.h"
#include "wire/frame.h"
#include "wire/handshake.h"
#include "wire/messages.h"

namespace sluice::bench {
namespace {

namespace tcp = transport::tcp;

struct ControlFrame {
  wire::FrameType type = wire::FrameType::kHello;
  std::vector<std::byte> body;
};

Result<ControlFrame> read_frame(int fd, Nanos deadline) {
  std::array<std::byte, wire::kHeaderBytes> raw{};
  if (const Status s = tcp::read_exact(fd, raw, deadline); !s.ok())
    return fail(s.code(), "no answer: " + std::string(to_string(s.code())));
  wire::FrameHeader header;
  Status s = wire::decode_header(raw, header);
  std::vector<std::byte> extensions(header.extension_bytes());
  ControlFrame frame{.type = header.type, .body = {}};
  if (s.ok()) s = tcp::read_exact(fd, extensions, deadline);
  if (s.ok()) s = wire::verify_header(raw, extensions);
  if (s.ok() && wire::is_data(header.type)) s = Errc::kUnexpectedMessage;
  if (s.ok()) {
    frame.body.resize(header.length);
    s = tcp::read_exact(fd, frame.body, deadline);
  }
  if (!s.ok()) return fail(s.code(), "not the answer of a reducer: " + std::string(to_string(s.code())));
  return frame;
}

template <typename M>
Result<M> expect(int fd, Nanos deadline) {
  auto frame = read_frame(fd, deadline);
  if (!frame) return tl::unexpected<Error>(frame.error());
  if (frame->type == wire::FrameType::kRefused) {
    wire::Refused refused;
    if (wire::decode_body(frame->body, refused).ok()) return fail(refused.code, "refused: " + refused.text);
  }
  M message;
  if (frame->type != M::kType)
    return fail(Errc::kUnexpectedMessage, fmt::format("answered with {}", wire::to_string(frame->type)));
  if (const Status s = wire::decode_body(frame->body, message); !s.ok()) {
    return fail(s.code(),
                fmt::format("{} that can't be read: {}", wire::to_string(M::kType), to_string(s.code())));
  }
  return message;
}

template <typename M>
Status send(int fd, const M& message, Nanos deadline) {
  return tcp::write_all(fd, wire::encode_message(message), deadline);
}

Result<std::string> ask(const config::Endpoint& reducer, const Credentials& credentials, Nanos deadline) {
  auto socket = tcp::connect_to(reducer.host, reducer.port, {}, deadline);
  if (!socket) return tl::unexpected<Error>(socket.error());
  wire::Hello hello;
  hello.purpose = wire::Purpose::kStatus;
  hello.job = credentials.job;
  if (getrandom(hello.nonce.data(), hello.nonce.size(), 0) != static_cast<ssize_t>(hello.nonce.size())) {
    return fail(Errc::kSystem, fmt::format("no random bytes: {}", std::strerror(errno)));
  }
  if (const Status s = send(socket->fd(), hello, deadline); !s.ok())
    return fail(s.code(), "cannot send HELLO");
  auto welcome = expect<wire::Welcome>(socket->fd(), deadline);
  if (!welcome) return tl::unexpected<Error>(welcome.error());

  wire::StatusQuery query;
  if (credentials.token) {
    if (welcome->proof == 0 ||
        !wire::equal_digests(welcome->mac, wire::server_proof(*credentials.token, hello, *welcome))) {
      return fail(Errc::kUnauthenticated,
                  fmt::format("does not prove that it knows the token of job \"{}\"", credentials.job));
    }
    query.mac = wire::client_proof(*credentials.token, hello, *welcome, 0);
  }
  if (const Status s = send(socket->fd(), query, deadline); !s.ok())
    return fail(s.code(), "cannot send STATUS_QUERY");
  auto reply = expect<wire::StatusReply>(socket->fd(), deadline);
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
  auto text = ask(reducer, credentials, monotonic_now() + timeout);
  if (!text) return add_context("reducer " + config::to_string(reducer), text.error());
  return text;
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
      return fail(Errc::kUnsupported,
                  fmt::format("reducer {}: status can't be read: {}", config::to_string(reducer), e.what()));
    }
  }
  return usage;
}

}  // namespace sluice::bench
