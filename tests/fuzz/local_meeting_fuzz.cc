// Fuzzes the meeting of the ranks of a host: strangers that do not hold the job token speak at the socket of
// the session while its ranks meet. Whatever they say, the ranks meet; and a rank that finds a stranger in
// the place of the others does not join it.
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <thread>

#include "core/clock.h"
#include "core/text_encoding.h"
#include "gpu_client/local/meeting.h"
#include "gpu_client/local/meeting_messages.h"
#include "gpu_client/local/packet_socket.h"
#include "tests/fuzz/input.h"

namespace sluice::fuzz {
namespace {

constexpr Nanos kTimeout = 20 * kSecond;
constexpr uint32_t kMostStrangers = 6;
constexpr local::Geometry kGeometry = {.ranks = 2, .window = 2, .slots = 4, .slot_bytes = 4096};

void require(bool holds) {
  if (!holds) std::abort();
}

engine::Identity identity_of(uint64_t number, Rank rank) {
  engine::Identity out;
  const auto process = static_cast<uint64_t>(::getpid());
  std::memcpy(out.session.bytes.data(), &process, sizeof process);
  std::memcpy(out.session.bytes.data() + sizeof process, &number, sizeof number);
  out.rank = rank;
  out.ranks = 2;
  out.token = wire::Digest{1, 2, 3};
  return out;
}

// As in meeting.cc.
std::string socket_name(const SessionId& session) {
  Bytes data;
  for (const char c : std::string_view("sluice local session")) data.push_back(static_cast<std::byte>(c));
  for (const auto byte : session.bytes) data.push_back(static_cast<std::byte>(byte));
  const wire::Digest digest = wire::sha256(data);
  return "sluice-" + std::to_string(::geteuid()) + "-" + hex_text(std::span(digest).first<16>()) + "-0";
}

// A packet that a rank or a leader may send, or any bytes.
Bytes take_packet(Input& in) {
  const auto whole = [&](auto message) {
    Bytes out{static_cast<std::byte>(message.kType)};
    const Bytes body = wire::encode_body(message);
    out.insert(out.end(), body.begin(), body.end());
    if (in.below(4) == 0) out.resize(in.below(static_cast<uint32_t>(out.size()) + 8));
    return out;
  };
  switch (in.below(8)) {
    case 0:
    case 1:
      return whole(local::LocalHello{.version = in.below(4) == 0 ? in.take<uint16_t>() : local::kLocalVersion,
                                     .rank = in.below(3),
                                     .ranks = in.below(4),
                                     .has_token = static_cast<uint8_t>(in.below(3) != 0)});
    case 2: {
      local::LocalProof proof;
      proof.proof.fill(in.u8());
      return whole(proof);
    }
    case 3: return whole(local::LocalChallenge{});
    case 4: return whole(local::LocalSegment{.ranks = in.below(4)});
    case 5: return whole(local::LocalReady{.code = static_cast<Errc>(in.u8()), .text = "ready"});
    case 6: return whole(local::LocalVerdict{.code = static_cast<Errc>(in.u8()), .text = "verdict"});
    default: return in.exactly(in.below(600));
  }
}

void speak(Input& in, const local::Socket& socket, const local::Socket& descriptor) {
  const Bytes packet = take_packet(in);
  static_cast<void>(local::send_packet(socket, packet, in.below(4) == 0 ? descriptor.fd() : -1));
}

// Rank 0 leads, strangers come, then rank 1.
void meet_among_strangers(Input in, uint64_t number) {
  const local::Topology topology = local::Topology::of_one_host(2);
  const local::MeetingPlan plan{.topology = topology, .geometry = kGeometry, .timeout = kTimeout};
  const engine::Identity ids[] = {identity_of(number, 0), identity_of(number, 1)};
  std::array<std::optional<Result<void>>, 2> met;
  std::array<std::optional<local::Segment>, 2> segments;
  const auto run = [&](Rank rank) {
    met[rank] = local::meet(ids[rank], plan, [&](local::Segment segment) -> Result<void> {
      segments[rank].emplace(std::move(segment));
      return {};
    });
  };
  std::thread leader(run, 0);
  const std::string name = socket_name(ids[0].session);
  std::vector<local::Socket> strangers;
  const Nanos deadline = monotonic_now() + kTimeout;
  while (strangers.empty() && monotonic_now() < deadline) {
    if (auto first = local::connect_at(name)) strangers.push_back(std::move(*first));
  }
  require(!strangers.empty());
  while (!in.empty()) {
    const uint32_t what = in.below(6);
    local::Socket& stranger = strangers[in.below(static_cast<uint32_t>(strangers.size()))];
    if (what == 0 && strangers.size() < kMostStrangers) {
      if (auto next = local::connect_at(name)) strangers.push_back(std::move(*next));
    } else if (what == 1) {
      stranger = {};
      if (auto next = local::connect_at(name)) stranger = std::move(*next);
    } else if (what == 2) {
      static_cast<void>(local::receive_packet(stranger));
    } else {
      speak(in, stranger, strangers.front());
    }
  }
  std::thread follower(run, 1);
  leader.join();
  follower.join();
  for (const Rank rank : {0, 1}) require(met[rank]->has_value() && segments[rank].has_value());
  segments[0]->failure().code = 77;
  require(segments[1]->failure().code == 77);
}

// A stranger has taken the name of the socket.
void meet_a_stranger(Input in, uint64_t number) {
  const engine::Identity identity = identity_of(number, 1);
  auto listener = local::listen_at(socket_name(identity.session), 8);
  require(listener.has_value());
  const local::Topology topology = local::Topology::of_one_host(2);
  const local::MeetingPlan plan{.topology = topology, .geometry = kGeometry, .timeout = kTimeout};
  Result<void> met;
  std::thread rank(
      [&] { met = local::meet(identity, plan, [](local::Segment) -> Result<void> { std::abort(); }); });
  const Nanos deadline = monotonic_now() + kTimeout;
  local::Socket socket;
  while (!socket.valid() && monotonic_now() < deadline) {
    if (auto next = local::accept_from(*listener)) socket = std::move(*next);
  }
  require(socket.valid());
  do {
    speak(in, socket, *listener);
  } while (!in.empty());
  *listener = {};
  socket = {};
  rank.join();
  require(!met.has_value());
}

}  // namespace

void fuzz_one(Input in) {
  static uint64_t number = 0;
  ++number;
  if (in.below(3) == 0) {
    meet_a_stranger(in, number);
  } else {
    meet_among_strangers(in, number);
  }
}

}  // namespace sluice::fuzz
