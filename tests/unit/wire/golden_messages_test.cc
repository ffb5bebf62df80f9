// Compares encoded messages with bodies that were written by hand from the table of protocol.md section 4.
#include <gtest/gtest.h>

#include <cctype>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/message_fields.h"
#include "wire/messages.h"

namespace sluice::wire {
namespace {

std::vector<std::byte> from_hex(std::string_view text) {
  std::string digits;
  for (const char c : text) {
    if (std::isxdigit(static_cast<unsigned char>(c)) != 0) digits += c;
  }
  std::vector<std::byte> bytes;
  for (size_t i = 0; i + 1 < digits.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(std::stoul(digits.substr(i, 2), nullptr, 16)));
  return bytes;
}

// 32 bytes: first, first + 1, ...
std::array<uint8_t, 32> run_from(uint8_t first) {
  std::array<uint8_t, 32> out{};
  std::iota(out.begin(), out.end(), first);
  return out;
}
constexpr const char* kRunFrom40 = "404142434445464748494a4b4c4d4e4f 505152535455565758595a5b5c5d5e5f";
constexpr const char* kRunFrom80 = "808182838485868788898a8b8c8d8e8f 909192939495969798999a9b9c9d9e9f";

template <typename M>
void expect_body(const M& m, const std::string& hex) {
  const auto golden = from_hex(hex);
  EXPECT_EQ(encode_body(m), golden);
  M decoded;
  ASSERT_TRUE(decode_body(golden, decoded).ok());
  EXPECT_EQ(test::fields_of(decoded), test::fields_of(m));
}

TEST(GoldenMessages, Hello) {
  Hello m{
      .min_version = 1, .max_version = 3, .purpose = Purpose::kLane, .rank = 0x01020304, .ranks = 0x11121314};
  m.lane = 0x21222324;
  std::iota(m.session.bytes.begin(), m.session.bytes.end(), uint8_t{0x10});
  m.incarnation = 0x3132333435363738;
  m.features = 5;
  m.nonce = run_from(0x40);
  m.job = "train-7";
  m.tenant = "acme";
  const std::string without_key_id = std::string(
                                         "01 03 01 00"                       // versions 1..3, purpose lane, 0
                                         "04030201 14131211"                 // rank, ranks
                                         "24232221"                          // lane
                                         "101112131415161718191a1b1c1d1e1f"  // session
                                         "3837363534333231"                  // incarnation
                                         "0500000000000000") +               // features
                                     kRunFrom40 +                            // nonce
                                     "0700 747261696e2d37"                   // job
                                     "0400 61636d65";                        // tenant
  expect_body(m, without_key_id);
  m.key_id = 0x4142434445464748;
  expect_body(m, without_key_id + "4847464544434241");
}

TEST(GoldenMessages, Welcome) {
  Welcome m{
      .version = 1, .proof = 1, .lanes = 0x0203, .max_slot_bytes = 0x00100000, .reducer = 0xa1a2a3a4a5a6a7a8};
  m.features = 1;
  m.nonce = run_from(0x40);
  m.mac = run_from(0x80);
  m.software = "sluice 0.1.0";
  expect_body(m, std::string("01 01 0302"           // version, proof, lanes
                             "00001000"             // max_slot_bytes 1 MiB
                             "a8a7a6a5a4a3a2a1"     // reducer
                             "0100000000000000") +  // features
                     kRunFrom40 +
                     kRunFrom80 +  // nonce, mac
                     "0c00 736c7569636520302e312e30");
  Welcome with_rate{.version = 1, .software = "s"};
  with_rate.link_rate = 25'000'000'000;
  const std::string zeros(2 * (2 + 4 + 8 + 8 + 32 + 32), '0');  // lanes to mac
  expect_body(with_rate, "01 00" + zeros + "0100 73" + "00ba1dd205000000");
}

TEST(GoldenMessages, Join) {
  Join m;
  m.view_hash = 0x0102030405060708;
  m.window_bytes = 0x00200000;
  m.slot_bytes = 0x00040000;
  m.lanes = 4;
  m.reducer_index = 1;
  m.join_timeout_ms = 30000;
  m.reducers = {0x1111111111111111, 0x2222222222222223};
  m.mac = run_from(0x80);
  expect_body(m, std::string("0807060504030201"   // view_hash
                             "00002000 00000400"  // window_bytes, slot_bytes
                             "0400 0100"          // lanes, reducer_index
                             "30750000"           // join_timeout_ms
                             "0200 1111111111111111 2322222222222222") +
                     kRunFrom80);
}

TEST(GoldenMessages, JoinedAttachAttached) {
  expect_body(Joined{.handle = 0x01020304, .heartbeat_ms = 1000, .peer_timeout_ms = 15000},
              "04030201 e8030000 983a0000");
  expect_body(Attach{.handle = 0x01020304, .view_hash = 0x0102030405060708, .mac = run_from(0x80)},
              std::string("04030201 0807060504030201") + kRunFrom80);
  expect_body(Attached{.slots = 8}, "08000000");
}

TEST(GoldenMessages, PairAndPaired) {
  expect_body(Pair{.address = {0x51, 0x52, 0x01}, .reason = {}}, "0300 515201 0000");
  expect_body(Pair{.address = {}, .reason = "no"}, "0000 0200 6e6f");
  expect_body(Paired{.ready = 1, .reason = {}}, "01 0000");
}

TEST(GoldenMessages, RefusedAndAbort) {
  Refused refused;
  refused.code = Errc::kRankTaken;
  refused.rank = 3;
  refused.text = "taken";
  expect_body(refused, "3100 03000000 0500 74616b656e");
  Abort abort;
  abort.code = Errc::kPeerLost;
  abort.text = "";
  expect_body(abort, "4000 ffffffff 0000");
}

TEST(GoldenMessages, VoteVerdictCommit) {
  expect_body(Vote{.yes = 1, .reason = {.code = Errc::kOk}}, "01 0000 ffffffff 0000");
  expect_body(Vote{.yes = 0, .reason = {.code = Errc::kMismatch, .rank = 1, .text = "no"}},
              "00 3200 01000000 0200 6e6f");
  expect_body(Verdict{.commit = 1, .incarnation = 0x0102030405060708, .reason = {.code = Errc::kOk}},
              "01 0807060504030201 0000 ffffffff 0000");
  expect_body(Verdict{.reason = {.code = Errc::kJoinTimeout, .rank = 2, .text = "late"}},
              "00 0000000000000000 3600 02000000 0400 6c617465");
  expect_body(Commit{.incarnation = 0x0102030405060708}, "0807060504030201");
}

TEST(GoldenMessages, HeartbeatLeaveStatus) {
  expect_body(Heartbeat{.count = 5,
                        .waited_ms = 500,
                        .missing_ranks = 2,
                        .missing = {3, 258},
                        .finished = 0x0102,
                        .answer = 1},
              "0500000000000000 f4010000 02000000 0200 03000000 02010000 0201000000000000 01");
  expect_body(Heartbeat{.missing = {}, .packets = 0x0102, .lost_packets = 3, .stalled_ms = 5000},
              "0000000000000000 00000000 00000000 0000 0000000000000000 00 0201000000000000 0300000000000000 "
              "88130000");
  expect_body(Leave{.finished = 0x0304}, "0403000000000000");
  expect_body(LeaveAck{}, "");
  expect_body(StatusQuery{.mac = run_from(0x80)}, kRunFrom80);
  expect_body(VerdictQuery{.mac = run_from(0x40)}, kRunFrom40);
  expect_body(StatusReply{.json = "{}"}, "0200 7b7d");
}

TEST(GoldenMessages, GatherAndGathered) {
  expect_body(Gather{.round = 2, .timeout_ms = 30000, .data = {7, 8, 9}, .mac = run_from(0x40)},
              std::string("02 30750000 0300 070809") + kRunFrom40);
  expect_body(Gathered{.round = 2, .first_rank = 0x0102, .sizes = {1, 0, 2}, .data = {7, 8, 9}},
              "02 02010000 0300 0100 0000 0200 0300 070809");
}

TEST(GoldenMessages, StreamAndStreamAnswer) {
  Stream stream{.min_version = 1, .max_version = 2, .index = 3, .count = 4};
  std::iota(stream.secret.begin(), stream.secret.end(), uint8_t{0x10});
  expect_body(stream, "01 02 0300 0400 101112131415161718191a1b1c1d1e1f");
  expect_body(StreamOffer{.stream = stream, .features = kStreamRdma | kStreamRdmaOnly},
              "01 02 0300 0400 101112131415161718191a1b1c1d1e1f 3000000000000000");
  expect_body(StreamAnswer{.code = Errc::kNoCommonVersion, .version = 1, .count = 4}, "3500 01 00 0400");
}

TEST(GoldenMessages, ResumeAndViewChange) {
  expect_body(Resume{.incarnation = 0x0102030405060708,
                     .version = 3,
                     .view_hash = 0x1112131415161718,
                     .base_chunk = 12,
                     .results_held = 9},
              "0807060504030201 0300 1817161514131211 0c00000000000000 0900000000000000");
  expect_body(ResumeAck{.contributions_held = 10}, "0a00000000000000");
  expect_body(Suspect{.reducer = 0x0102030405060708, .code = Errc::kReducerLost}, "0807060504030201 4200");
  ViewQuery query;
  query.version = 3;
  query.removed = {7};
  query.added = {8, 9};
  query.confirmed = {8};
  query.addresses = "a,b";
  expect_body(
      query,
      "0300 0100 0700000000000000 0200 0800000000000000 0900000000000000 0100 0800000000000000 0300 612c62");
  ViewKnown known;
  known.removed = {7};
  expect_body(known, "0100 0700000000000000 0000 0000 0000");
  expect_body(RateChanges{.ranks = {3, 5}, .sequences = {1, 2}, .rates = {0x0102030405060708, 16}},
              "0200 03000000 05000000 0200 0100 0200 0200 0807060504030201 1000000000000000");
  expect_body(ViewAnswer{.version = 2, .view_hash = 0x0102030405060708, .first_unfinished_chunk = 11},
              "0200 0807060504030201 0b00000000000000");
  expect_body(ViewCommit{.version = 2, .view_hash = 0x0102030405060708, .base_chunk = 12},
              "0200 0807060504030201 0c00000000000000");
  expect_body(DrainNotice{.deadline_ms = 60000}, "60ea0000");
}

TEST(GoldenMessages, FrameOfCommit) {
  const auto golden = from_hex(
      "534c4943 01 12 0100 00 00 0000"     // magic, version, type 18, flags, ext_len8, scale, view_version
      "07000000 00000000 0000 00 00"       // session, view_hash, slot, kind, encoding
      "0000000000000000 0000000000000000"  // sequence, chunk
      "00000000 00 00 00 00"               // op_id, types, op
      "08000000 00000000");                // length, fingerprint; the CRCs follow
  const auto frame = encode_message(Commit{.incarnation = 1}, 7);
  ASSERT_EQ(frame.size(), kHeaderBytes + 8);
  EXPECT_EQ(std::vector(frame.begin(), frame.begin() + 56), golden);
  EXPECT_EQ(std::vector(frame.begin() + kHeaderBytes, frame.end()), from_hex("0100000000000000"));
}

}  // namespace
}  // namespace sluice::wire
