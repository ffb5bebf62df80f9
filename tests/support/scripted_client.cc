#include "tests/support/scripted_client.h"

#include <gtest/gtest.h>

#include <cstring>
#include <utility>

#include "core/clock.h"
#include "core/crc32c.h"
#include "transport/tcp/blocking_io.h"
#include "transport/tcp/connect.h"

namespace sluice::test {

ScriptedConnection::ScriptedConnection(uint16_t port) {
  auto socket = transport::tcp::connect_to("127.0.0.1", port,
                                           {.buffer_bytes = 0, .congestion_control = {}, .local_address = {}},
                                           monotonic_now() + 5 * kSecond);
  if (!socket) throw std::runtime_error(socket.error().text);
  socket_ = std::move(*socket);
}

void ScriptedConnection::send_bytes(std::span<const std::byte> bytes) {
  // Some tests send to a reducer that has already closed the connection.
  (void)transport::tcp::write_all(socket_, bytes, monotonic_now() + 5 * kSecond);
}

void ScriptedConnection::send_text(std::string_view text) {
  send_bytes(std::as_bytes(std::span(text)));
}

std::optional<ReceivedFrame> ScriptedConnection::receive(Nanos within) {
  const Nanos deadline = monotonic_now() + within;
  std::array<std::byte, wire::kHeaderBytes> bytes{};
  const Status got = transport::tcp::read_exact(socket_, bytes, deadline);
  if (got == Errc::kTimeout) throw std::runtime_error("no frame before the deadline");
  if (!got.ok()) return std::nullopt;
  ReceivedFrame frame;
  if (!wire::decode_header(bytes, frame.header).ok())
    throw std::runtime_error("malformed header from the reducer");
  frame.extensions.resize(frame.header.extension_bytes());
  frame.payload.resize(frame.header.length);
  if (!transport::tcp::read_exact(socket_, frame.extensions, deadline).ok() ||
      !transport::tcp::read_exact(socket_, frame.payload, deadline).ok() ||
      !wire::verify_header(bytes, frame.extensions).ok() ||
      crc32c(frame.payload) != frame.header.payload_crc) {
    throw std::runtime_error("corrupt frame from the reducer");
  }
  return frame;
}

bool ScriptedConnection::closed_within(Nanos within) {
  const Nanos deadline = monotonic_now() + within;
  std::array<std::byte, 256> bytes{};
  for (;;) {
    const Status got = transport::tcp::read_exact(socket_, bytes, deadline);
    if (got == Errc::kTimeout) return false;
    if (!got.ok()) return true;
  }
}

const wire::Welcome& ScriptedConnection::handshake(const wire::Hello& hello) {
  hello_ = hello;
  send(hello_);
  welcome_ = expect<wire::Welcome>();
  return welcome_;
}

ScriptedMember::ScriptedMember(uint16_t port, Shape shape)
    : control(port), incarnation(shape.incarnation), port_(port), shape_(std::move(shape)) {}

wire::Hello ScriptedMember::hello(wire::Purpose purpose, uint32_t lane) const {
  wire::Hello h;
  h.purpose = purpose;
  h.session = shape_.session;
  h.rank = shape_.rank;
  h.ranks = shape_.ranks;
  h.lane = lane;
  h.job = shape_.job;
  h.tenant = shape_.tenant;
  h.features = shape_.features;
  h.incarnation = incarnation;
  h.nonce[0] = static_cast<uint8_t>(shape_.rank);
  if (shape_.sends_key_id && shape_.token) h.key_id = wire::key_id(*shape_.token, h.nonce);
  return h;
}

void ScriptedMember::join() {
  const auto& welcome = control.handshake(hello(wire::Purpose::kControl, 0));
  wire::Join join;
  join.view_hash = shape_.view_hash;
  join.window_bytes = shape_.window_bytes;
  join.slot_bytes = shape_.slot_bytes;
  join.lanes = shape_.lanes;
  join.join_timeout_ms = shape_.join_timeout_ms;
  join.reducers = shape_.reducers_before;
  join.reducer_index = static_cast<uint16_t>(join.reducers.size());
  join.reducers.push_back(welcome.reducer);
  join.reducers.insert(join.reducers.end(), shape_.reducers_after.begin(), shape_.reducers_after.end());
  if (shape_.token) join.mac = control.proof(*shape_.token, join.view_hash);
  control.send(join);
}

void ScriptedMember::expect_joined() {
  joined = control.expect<wire::Joined>();
}

void ScriptedMember::attach() {
  for (uint16_t lane = 0; lane < shape_.lanes; ++lane) {
    lanes.push_back(request_lane(lane));
    (void)lanes.back().expect<wire::Attached>();
  }
}

ScriptedConnection ScriptedMember::request_lane(uint16_t lane) {
  ScriptedConnection c(port_);
  request_attach(c, wire::Purpose::kLane, lane);
  return c;
}

void ScriptedMember::request_attach(ScriptedConnection& c, wire::Purpose purpose, uint16_t lane) const {
  c.handshake(hello(purpose, lane));
  wire::Attach attach{.handle = joined.handle, .view_hash = shape_.view_hash, .mac = {}};
  if (shape_.token) attach.mac = c.proof(*shape_.token, attach.view_hash);
  c.send(attach);
}

ScriptedConnection ScriptedMember::request_resume() {
  ScriptedConnection old = std::exchange(control, ScriptedConnection(port_));
  request_attach(control, wire::Purpose::kControl, 0);
  return old;
}

ScriptedConnection ScriptedMember::resume() {
  ScriptedConnection old = request_resume();
  if (control.expect<wire::Attached>().slots != 0)
    throw std::runtime_error("ATTACHED on a control connection has slots");
  return old;
}

void ScriptedMember::vote_yes() {
  wire::Vote vote;
  vote.yes = 1;
  control.send(vote, joined.handle);
}

void ScriptedMember::commit() {
  const auto verdict = control.expect<wire::Verdict>();
  if (verdict.commit == 0) throw std::runtime_error("join refused: " + verdict.reason.text);
  commit_as(verdict.incarnation);
}

void ScriptedMember::commit_as(uint64_t session_incarnation) {
  incarnation = session_incarnation;
  const wire::Commit commit{.incarnation = incarnation};
  control.send(commit, joined.handle);
  for (auto& lane : lanes) lane.send(commit, joined.handle);
}

void ScriptedMember::contribute(uint64_t sequence, const std::vector<float>& values, uint16_t lane) {
  wire::FrameHeader h;
  h.type = wire::FrameType::kContribution;
  h.flags = wire::kFlagPayloadCrc;
  h.session = joined.handle;
  h.view_hash = static_cast<uint32_t>(shape_.view_hash);
  h.sequence = h.chunk = sequence;
  h.op_id = static_cast<uint32_t>(sequence);
  h.slot = static_cast<uint16_t>(sequence % (shape_.window_bytes / shape_.slot_bytes / shape_.lanes));
  h.kind = wire::Kind::kAllreduce;
  h.wire_dtype = h.acc_dtype = h.result_dtype = wire::DType::kF32;
  h.length = static_cast<uint32_t>(values.size() * sizeof(float));
  h.fingerprint = wire::fingerprint(values.size(), wire::DType::kF32, wire::Op::kSum, h.kind);
  const auto payload = std::as_bytes(std::span(values));
  h.payload_crc = crc32c(payload);
  std::vector<std::byte> frame(wire::kHeaderBytes);
  wire::encode_header(h, {}, wire::HeaderBytes(frame.data(), wire::kHeaderBytes));
  frame.insert(frame.end(), payload.begin(), payload.end());
  lanes[lane].send_bytes(frame);
}

std::vector<float> ScriptedMember::result(uint64_t sequence, uint16_t lane) {
  const auto frame = lanes[lane].receive();
  if (!frame || frame->header.type != wire::FrameType::kResult || frame->header.sequence != sequence) {
    throw std::runtime_error("expected the result of sequence " + std::to_string(sequence));
  }
  std::vector<float> values(frame->payload.size() / sizeof(float));
  std::memcpy(values.data(), frame->payload.data(), frame->payload.size());
  return values;
}

void ScriptedMember::leave() {
  control.send(wire::Leave{}, joined.handle);
  (void)control.expect<wire::LeaveAck>();
  lanes.clear();
}

std::vector<ScriptedMember> start_session(uint16_t port, const ScriptedMember::Shape& shape) {
  std::vector<ScriptedMember> members;
  for (uint32_t r = 0; r < shape.ranks; ++r) {
    ScriptedMember::Shape own = shape;
    own.rank = r;
    members.emplace_back(port, own);
    members.back().join();
    members.back().expect_joined();
  }
  for (auto& m : members) m.attach();
  if (!shape.reducers_before.empty()) {
    for (auto& m : members) m.commit_as(shape.incarnation != 0 ? shape.incarnation : kOtherIncarnation);
    return members;
  }
  for (auto& m : members) m.vote_yes();
  for (auto& m : members) m.commit();
  return members;
}

void expect_sums(std::vector<ScriptedMember>& ranks, uint64_t sequence) {
  const size_t count = 1000;
  float sum = 0;
  for (size_t r = 0; r < ranks.size(); ++r) {
    ranks[r].contribute(sequence, std::vector<float>(count, static_cast<float>(r + 1)));
    sum += static_cast<float>(r + 1);
  }
  for (auto& rank : ranks) EXPECT_EQ(rank.result(sequence), std::vector<float>(count, sum));
}

SessionId session_id(uint8_t tag) {
  SessionId id;
  id.bytes.fill(tag);
  return id;
}

}  // namespace sluice::test
