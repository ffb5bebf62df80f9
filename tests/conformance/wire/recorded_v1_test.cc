// Checks the recorded exchange frame by frame: each frame decodes to the fields below, and these fields
// encode to its bytes. An independent program (vectors/write_v1_exchange.py) wrote the file.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "core/bytes.h"
#include "tests/conformance/wire/exchange_file.h"
#include "tests/support/crc32c_model.h"
#include "tests/support/message_fields.h"
#include "wire/extension.h"
#include "wire/handshake.h"
#include "wire/view.h"

namespace sluice::wire {
namespace {

using Bytes = std::vector<std::byte>;

constexpr uint64_t kReducer = 0xa1a2a3a4a5a6a7a8;
constexpr uint64_t kIncarnation = 0x0102030405060708;
constexpr uint32_t kHandle = 7;

uint64_t recorded_view_hash() {
  View view;
  view.reducers = {{.id = kReducer}};
  view.window_bytes = 32 * kKiB;
  view.slot_bytes = 16 * kKiB;
  return view_hash(view);
}

Digest token() {
  Bytes key;
  for (int i = 0; i < 32; ++i) key.push_back(static_cast<std::byte>(i));
  return job_token(key, "train-7");
}

// Recording iterates over the recorded frames. Each expectation consumes the next frame.
class Recording {
 public:
  Recording() : frames_(test::read_exchange(std::string(SLUICE_VECTORS) + "/v1_exchange.hex")) {}

  template <typename M>
  void message(const std::string& connection, char arrow, uint32_t session, const M& expected) {
    const test::RecordedFrame* frame = next(connection, arrow);
    ASSERT_NE(frame, nullptr);
    SCOPED_TRACE("frame " + std::to_string(at_) + ": " + connection + ' ' + frame->name);
    EXPECT_EQ(frame->name, to_string(M::kType));
    FrameHeader h;
    std::span<const std::byte> extensions;
    std::span<const std::byte> body;
    ASSERT_TRUE(split(*frame, h, extensions, body));
    EXPECT_EQ(h, control_header(M::kType, body, session));
    EXPECT_TRUE(extensions.empty());
    M decoded;
    ASSERT_TRUE(decode_body(body, decoded).ok());
    EXPECT_EQ(test::fields_of(decoded), test::fields_of(expected));
    EXPECT_EQ(encode_message(expected, session), frame->bytes);
  }

  template <typename Extension>
  void data(const std::string& connection, char arrow, FrameHeader expected, const Extension& extension,
            const Bytes& payload) {
    const test::RecordedFrame* frame = next(connection, arrow);
    ASSERT_NE(frame, nullptr);
    SCOPED_TRACE("frame " + std::to_string(at_) + ": " + connection + ' ' + frame->name);
    expected.flags = kFlagPayloadCrc;
    expected.ext_len8 = kSmallExtensionBytes / 8;
    expected.length = static_cast<uint32_t>(payload.size());
    expected.payload_crc = test::crc32c_model(payload);
    FrameHeader h;
    std::span<const std::byte> extensions;
    std::span<const std::byte> body;
    ASSERT_TRUE(split(*frame, h, extensions, body));
    EXPECT_EQ(h, expected);
    EXPECT_EQ(Bytes(body.begin(), body.end()), payload);
    Bytes encoded(kHeaderBytes + kSmallExtensionBytes);
    encode_extension(extension, SmallExtension(encoded.data() + kHeaderBytes, kSmallExtensionBytes));
    EXPECT_TRUE(std::ranges::equal(extensions, std::span(encoded).subspan(kHeaderBytes)));
    if constexpr (std::is_same_v<Extension, ResultInfo>) {
      EXPECT_EQ(find_result_info(extensions), extension);
    } else {
      EXPECT_EQ(find_op_info(extensions), extension);
    }
    encode_header(expected, extensions, HeaderBytes(encoded.data(), kHeaderBytes));
    encoded.insert(encoded.end(), payload.begin(), payload.end());
    EXPECT_EQ(encoded, frame->bytes);
  }

  [[nodiscard]] bool done() const { return at_ == frames_.size(); }

 private:
  const test::RecordedFrame* next(const std::string& connection, char arrow) {
    if (at_ == frames_.size()) return nullptr;
    const test::RecordedFrame& frame = frames_[at_++];
    EXPECT_EQ(frame.connection, connection) << "frame " << at_;
    EXPECT_EQ(frame.to_reducer ? '>' : '<', arrow) << "frame " << at_;
    return &frame;
  }

  // The checks of a receiver before it decodes a body.
  static bool split(const test::RecordedFrame& frame, FrameHeader& h, std::span<const std::byte>& extensions,
                    std::span<const std::byte>& body) {
    if (frame.bytes.size() < kHeaderBytes) return false;
    const auto raw = std::span(frame.bytes).first<kHeaderBytes>();
    if (!decode_header(raw, h).ok()) return false;
    const auto rest = std::span(frame.bytes).subspan(kHeaderBytes);
    if (rest.size() != h.extension_bytes() + h.length) return false;
    extensions = rest.first(h.extension_bytes());
    body = rest.subspan(h.extension_bytes());
    return verify_header(raw, extensions).ok() && test::crc32c_model(body) == h.payload_crc;
  }

  std::vector<test::RecordedFrame> frames_;
  size_t at_ = 0;
};

// HELLO and WELCOME of one connection, and the proofs over them.
struct RecordedHandshake {
  Hello hello;
  Welcome welcome;

  RecordedHandshake(uint8_t number, Purpose purpose, uint32_t rank) {
    hello.purpose = purpose;
    hello.rank = rank;
    hello.ranks = 2;
    std::iota(hello.session.bytes.begin(), hello.session.bytes.end(), uint8_t{0x10});
    std::iota(hello.nonce.begin(), hello.nonce.end(), static_cast<uint8_t>(0x40 + number));
    hello.job = "train-7";
    welcome.version = 1;
    welcome.proof = 1;
    welcome.lanes = 1;
    welcome.max_slot_bytes = 1 * kMiB;
    welcome.reducer = kReducer;
    std::iota(welcome.nonce.begin(), welcome.nonce.end(), static_cast<uint8_t>(0x90 + number));
    welcome.software = "sluice 0.1.0";
    welcome.mac = server_proof(token(), hello, welcome);
  }
  [[nodiscard]] Mac proof(uint64_t view_hash) const {
    return client_proof(token(), hello, welcome, view_hash);
  }
  void expect(Recording& r, const std::string& connection) const {
    r.message(connection, '>', 0, hello);
    r.message(connection, '<', 0, welcome);
  }
};

Join join_message(const RecordedHandshake& handshake) {
  Join m;
  m.view_hash = recorded_view_hash();
  m.window_bytes = 32 * kKiB;
  m.slot_bytes = 16 * kKiB;
  m.lanes = 1;
  m.join_timeout_ms = 30000;
  m.reducers = {kReducer};
  m.mac = handshake.proof(m.view_hash);
  return m;
}

FrameHeader data_header(FrameType type, uint64_t sequence, DType dtype, Op op, uint64_t count) {
  FrameHeader h;
  h.type = type;
  h.session = kHandle;
  h.view_hash = static_cast<uint32_t>(recorded_view_hash());
  h.slot = static_cast<uint16_t>(sequence % 2);
  h.kind = Kind::kAllreduce;
  h.sequence = sequence;
  h.chunk = sequence;
  h.op_id = static_cast<uint32_t>(sequence);
  h.wire_dtype = h.result_dtype = dtype;
  h.acc_dtype = accumulator_of(dtype);
  h.op = op;
  h.fingerprint = fingerprint(count, dtype, op, Kind::kAllreduce);
  return h;
}

template <typename T>
Bytes elements(std::initializer_list<T> values) {
  Bytes out(values.size() * sizeof(T));
  std::byte* p = out.data();
  for (const T v : values) store_le(p, v), p += sizeof(T);
  return out;
}

uint32_t bits(float v) {
  return std::bit_cast<uint32_t>(v);
}

// An operation: the contributions of ranks 0 and 1, and the result.
struct Operation {
  uint64_t sequence;
  DType dtype;
  Op op;
  Bytes contributions[2];
  Bytes result;

  [[nodiscard]] uint64_t count() const { return result.size() / size_of(dtype); }
  void contribute(Recording& r, uint32_t rank) const {
    r.data("lane" + std::to_string(rank), '>',
           data_header(FrameType::kContribution, sequence, dtype, op, count()), OpInfo{.count = count()},
           contributions[rank]);
  }
  void answer(Recording& r, const ResultInfo& info) const {
    for (const char* lane : {"lane0", "lane1"})
      r.data(lane, '<', data_header(FrameType::kResult, sequence, dtype, op, count()), info, result);
  }
};

const Operation kSumOperation = {
    .sequence = 0,
    .dtype = DType::kF32,
    .op = Op::kSum,
    .contributions = {elements<uint32_t>({bits(1.5F), bits(1e30F), 0xffc12345, 0x7f800000, 1, 0x80000000,
                                          bits(3.4e38F), bits(0.1F), 0x80000000}),
                      elements<uint32_t>({bits(2.25F), bits(-1e30F), bits(1.0F), 0xff800000, 2, 0,
                                          bits(3.4e38F), bits(0.2F), 0x80000000})},
    .result = elements<uint32_t>(
        {bits(3.75F), 0, 0x7fc00000, 0x7fc00000, 3, 0, 0x7f800000, bits(0.1F + 0.2F), 0x80000000})};

// Averages of 1 and 2; of 1.0078125 and 1.015625, a tie that rounds down to the even 0x3f82; of the
// subnormals 1 and 2, where 1.5 rounds to the even 2; and of -123.5 and 123.
const Operation kAvgOperation = {.sequence = 1,
                                 .dtype = DType::kBf16,
                                 .op = Op::kAvg,
                                 .contributions = {elements<uint16_t>({0x3f80, 0x3f81, 0x0001, 0xc2f7}),
                                                   elements<uint16_t>({0x4000, 0x3f82, 0x0002, 0x42f6})},
                                 .result = elements<uint16_t>({0x3fc0, 0x3f82, 0x0002, 0xbe80})};

const Operation kProdOperation = {
    .sequence = 2,
    .dtype = DType::kI32,
    .op = Op::kProd,
    .contributions = {elements<int32_t>({3, -70000, 2147483647}), elements<int32_t>({-5, 70001, 2})},
    .result = elements<int32_t>({-15, -605102704, -2})};

TEST(RecordedV1, MatchesItsFieldsAndBytes) {
  Recording r;
  const Verdict verdict{.commit = 1, .incarnation = kIncarnation, .reason = {.code = Errc::kOk}};

  for (uint8_t rank = 0; rank < 2; ++rank) {
    const std::string control = "control" + std::to_string(rank);
    const RecordedHandshake handshake(rank, Purpose::kControl, rank);
    handshake.expect(r, control);
    r.message(control, '>', 0, join_message(handshake));
    r.message(control, '<', kHandle,
              Joined{.handle = kHandle, .heartbeat_ms = 1000, .peer_timeout_ms = 15000});
  }

  const RecordedHandshake stranger(2, Purpose::kControl, 1);
  stranger.expect(r, "stranger");
  r.message("stranger", '>', 0, join_message(stranger));
  Refused refused;
  refused.code = Errc::kRankTaken;
  refused.rank = 1;
  refused.text = "rank 1 is taken by 10.0.0.2:40001";
  r.message("stranger", '<', 0, refused);

  for (uint8_t rank = 0; rank < 2; ++rank) {
    const std::string lane = "lane" + std::to_string(rank);
    const RecordedHandshake handshake(static_cast<uint8_t>(3 + rank), Purpose::kLane, rank);
    handshake.expect(r, lane);
    const uint64_t hash = recorded_view_hash();
    r.message(lane, '>', 0, Attach{.handle = kHandle, .view_hash = hash, .mac = handshake.proof(hash)});
    r.message(lane, '<', kHandle, Attached{.slots = slots_per_lane(32 * kKiB, 16 * kKiB, 1)});
  }

  for (const char* control : {"control0", "control1"})
    r.message(control, '>', kHandle, Vote{.yes = 1, .reason = {.code = Errc::kOk}});
  for (const char* control : {"control0", "control1"}) r.message(control, '<', kHandle, verdict);
  for (const char* connection : {"control0", "lane0", "control1", "lane1"})
    r.message(connection, '>', kHandle, Commit{.incarnation = kIncarnation});

  kSumOperation.contribute(r, 0);
  kSumOperation.contribute(r, 1);
  kSumOperation.answer(r, {.last_rank = 1, .lag_us = 1500});
  kAvgOperation.contribute(r, 0);
  kAvgOperation.contribute(r, 1);
  kAvgOperation.answer(r, {.last_rank = 1, .lag_us = 0});
  kProdOperation.contribute(r, 1);
  r.message("control0", '>', kHandle, Heartbeat{.count = 1, .missing = {}, .finished = 2});
  r.message("control1", '<', kHandle,
            Heartbeat{.count = 1, .waited_ms = 2000, .missing_ranks = 1, .missing = {0}});
  kProdOperation.contribute(r, 0);
  kProdOperation.answer(r, {.last_rank = 0, .lag_us = 0xffffffff});

  const RecordedHandshake status(5, Purpose::kStatus, 0);
  status.expect(r, "status");
  r.message("status", '>', 0, StatusQuery{.mac = status.proof(0)});
  r.message("status", '<', 0, StatusReply{.json = "{\"sessions\":1}"});
  const RecordedHandshake verdict_query(6, Purpose::kVerdict, 0);
  verdict_query.expect(r, "verdict");
  r.message("verdict", '>', 0, VerdictQuery{.mac = verdict_query.proof(0)});
  r.message("verdict", '<', 0, verdict);

  for (const char* control : {"control0", "control1"}) r.message(control, '>', kHandle, Leave{.finished = 3});
  for (const char* control : {"control0", "control1"}) r.message(control, '<', kHandle, LeaveAck{});

  Abort abort;
  abort.code = Errc::kPeerLost;
  abort.rank = 1;
  abort.text = "rank 1 (10.0.0.2:40001) is lost: reset";
  for (const char* connection : {"control0", "lane0"}) r.message(connection, '<', kHandle, abort);
  EXPECT_TRUE(r.done());
}

}  // namespace
}  // namespace sluice::wire
