#include "wire/messages.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/support/crc32c_model.h"
#include "tests/support/message_fields.h"

namespace sluice::wire {
namespace {

using Bytes = std::vector<std::byte>;

template <typename M>
class EveryMessage : public testing::Test {
 protected:
  M random_message() {
    M m;
    test::RandomFields fields(random_);
    M::visit(m, fields);
    return m;
  }
  std::mt19937_64 random_{static_cast<uint64_t>(M::kType)};
};

using Messages =
    testing::Types<Hello, Welcome, Join, Joined, Attach, Attached, Refused, Pair, Paired, Vote, Verdict,
                   Commit, Heartbeat, Leave, LeaveAck, Abort, StatusQuery, StatusReply, VerdictQuery, Gather,
                   Gathered, Stream, StreamOffer, StreamAnswer, Resume, ResumeAck, Suspect, ViewQuery,
                   ViewAnswer, ViewCommit, DrainNotice, ViewKnown, RateChanges>;
TYPED_TEST_SUITE(EveryMessage, Messages);

// The messages marked + in protocol.md section 4.
template <typename M>
constexpr bool kMarkedPlus =
    std::is_same_v<M, Hello> || std::is_same_v<M, Welcome> || std::is_same_v<M, Refused> ||
    std::is_same_v<M, Heartbeat> || std::is_same_v<M, Leave> || std::is_same_v<M, LeaveAck> ||
    std::is_same_v<M, DrainNotice> || std::is_same_v<M, Pair> || std::is_same_v<M, Paired> ||
    std::is_same_v<M, Gather> || std::is_same_v<M, Gathered>;

TYPED_TEST(EveryMessage, RoundTrips) {
  for (int round = 0; round < 50; ++round) {
    const TypeParam sent = this->random_message();
    const Bytes body = encode_body(sent);
    TypeParam received;
    ASSERT_TRUE(decode_body(body, received).ok());
    ASSERT_EQ(test::fields_of(received), test::fields_of(sent));
    ASSERT_EQ(encode_body(received), body);
  }
}

// The sizes of the bodies that peers without some of the appended fields send.
template <typename M>
std::set<size_t> sizes_without_appended(M message) {
  std::set<size_t> sizes;
  const auto without = [&](auto& field) {
    field.reset();
    sizes.insert(encode_body(message).size());
  };
  if constexpr (requires { message.link_rate; }) without(message.link_rate);
  if constexpr (requires { message.key_id; }) without(message.key_id);
  if constexpr (requires { message.stalled_ms; })
    without(message.stalled_ms), without(message.lost_packets), without(message.packets);
  return sizes;
}

// Bodies of up to 16 KiB make every size too slow under an emulator, so the middle of a long list is sampled.
size_t next_truncation(size_t size, size_t whole) {
  constexpr size_t kEverySize = 512;
  constexpr size_t kStep = 61;  // prime, so that cuts fall on every byte of an item
  return size < kEverySize || size + kStep + kEverySize > whole ? size + 1 : size + kStep;
}

TYPED_TEST(EveryMessage, IsRefusedWhenTruncated) {
  for (int round = 0; round < 3; ++round) {
    const TypeParam sent = this->random_message();
    const Bytes body = encode_body(sent);
    const std::set<size_t> without_appended = sizes_without_appended(sent);
    for (size_t size = 0; size < body.size(); size = next_truncation(size, body.size())) {
      TypeParam received;
      if (without_appended.contains(size)) {
        ASSERT_TRUE(decode_body(std::span(body).first(size), received).ok());
        continue;
      }
      const auto before = test::fields_of(received);
      ASSERT_EQ(decode_body(std::span(body).first(size), received), Status(Errc::kBadLength)) << size;
      ASSERT_EQ(test::fields_of(received), before) << "changed by a refused body of " << size;
    }
  }
}

TYPED_TEST(EveryMessage, MayGrowIfMarkedWithPlus) {
  const TypeParam sent = this->random_message();
  Bytes body = encode_body(sent);
  for (const size_t more : {1, 2, 100}) {
    body.resize(body.size() + more, std::byte{0xa5});
    TypeParam received;
    const Status status = decode_body(body, received);
    if (!kMarkedPlus<TypeParam>) {
      EXPECT_EQ(status, Status(Errc::kBadLength));
      continue;
    }
    ASSERT_TRUE(status.ok());
    auto known = test::fields_of(received);
    auto expected = test::fields_of(sent);
    if constexpr (requires { received.trailing; }) {
      EXPECT_EQ(encode_body(received), body) << "a proof covers the fields of a later version";
      known.pop_back();
      expected.pop_back();
    }
    EXPECT_EQ(known, expected);
  }
}

// Sets texts and lists to their maximal length.
struct MaximalFields {
  template <typename T>
  void operator()(T&) {}
  void text(std::string& v, size_t limit) { v.assign(limit, 'x'); }
  template <typename T>
  void list(std::vector<T>& v, size_t limit) {
    v.assign(limit, T{1});
  }
  template <typename T>
  void appended(std::optional<T>& v) {
    v = T{1};
  }
  void rest(Bytes&) {}
};

TYPED_TEST(EveryMessage, FitsAControlFrameAtItsLimits) {
  MaximalFields fields;
  TypeParam m;
  TypeParam::visit(m, fields);
  const Bytes body = encode_body(m);
  EXPECT_LE(body.size(), kMaxControlPayload);
  TypeParam received;
  EXPECT_TRUE(decode_body(body, received).ok());
  EXPECT_EQ(test::fields_of(received), test::fields_of(m));
}

TYPED_TEST(EveryMessage, IsFramedWithBothCrcs) {
  const Bytes body = encode_body(this->random_message());
  TypeParam m;
  ASSERT_TRUE(decode_body(body, m).ok());
  const Bytes frame = encode_message(m, 0xaabbccdd);
  ASSERT_EQ(frame.size(), kHeaderBytes + body.size());
  const ConstHeaderBytes header(frame.data(), kHeaderBytes);
  FrameHeader h;
  ASSERT_TRUE(decode_header(header, h).ok());
  EXPECT_TRUE(verify_header(header, {}).ok());
  EXPECT_EQ(h, (FrameHeader{.type = TypeParam::kType,
                            .flags = kFlagPayloadCrc,
                            .session = 0xaabbccdd,
                            .length = static_cast<uint32_t>(body.size()),
                            .payload_crc = test::crc32c_model(body)}));
}

// A body with one u16 length or count, followed by as many bytes as it announces.
Bytes with_length(const Bytes& before, size_t length, size_t item_bytes, size_t bytes_after) {
  Bytes body = before;
  body.push_back(static_cast<std::byte>(length & 0xff));
  body.push_back(static_cast<std::byte>(length >> 8));
  body.resize(body.size() + length * item_bytes + bytes_after);
  return body;
}

template <typename M>
void expect_limit(const char* field, size_t bytes_before, size_t limit, size_t item_bytes,
                  size_t bytes_after) {
  SCOPED_TRACE(field);
  const auto decode = [&](size_t length) {
    M m;
    return decode_body(with_length(Bytes(bytes_before), length, item_bytes, bytes_after), m);
  };
  EXPECT_EQ(decode(limit), Status(Errc::kOk));
  EXPECT_EQ(decode(limit + 1), Status(Errc::kBadField));
  EXPECT_EQ(decode(0xffff), Status(Errc::kBadField));
}

TEST(Messages, RefuseTextsAndListsOverTheirLimit) {
  expect_limit<Hello>("HELLO job", 80, 128, 1, 2);
  expect_limit<Hello>("HELLO tenant", 82, 128, 1, 0);
  expect_limit<Welcome>("WELCOME software", 88, 128, 1, 0);
  expect_limit<Join>("JOIN reducers", 24, 1024, 8, 32);
  expect_limit<Refused>("REFUSED text", 6, 1024, 1, 0);
  expect_limit<Vote>("VOTE text", 7, 1024, 1, 0);
  expect_limit<Verdict>("VERDICT text", 15, 1024, 1, 0);
  expect_limit<Heartbeat>("HEARTBEAT missing", 16, 16, 4, 9);
  expect_limit<StatusReply>("STATUS_REPLY json", 0, 16 * 1024 - 2, 1, 0);
  expect_limit<ViewQuery>("VIEW_QUERY removed", 2, 512, 8, 6);
  expect_limit<ViewQuery>("VIEW_QUERY added", 4, 512, 8, 4);
  expect_limit<RateChanges>("RATE_CHANGES rates", 4, 1024, 8, 0);
}

TEST(Messages, TruncateTextsAndListsToTheLimitWhenEncoding) {
  Refused refused;
  refused.text = std::string(5000, 'y');
  ASSERT_TRUE(decode_body(encode_body(refused), refused).ok());
  EXPECT_EQ(refused.text, std::string(kMaxErrorText, 'y'));
  Heartbeat heartbeat{.missing = std::vector<uint32_t>(40, 3)};
  ASSERT_TRUE(decode_body(encode_body(heartbeat), heartbeat).ok());
  EXPECT_EQ(heartbeat.missing.size(), kMaxNamedRanks);
}

TEST(Messages, KeepUnknownErrorCodes) {
  Refused refused;
  refused.code = static_cast<Errc>(9999);
  ASSERT_TRUE(decode_body(encode_body(refused), refused).ok());
  EXPECT_EQ(static_cast<unsigned>(refused.code), 9999u);
}

}  // namespace
}  // namespace sluice::wire
