#include "wire/messages.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "tests/support/crc32c_model.h"
#include "tests/support/message_fields.h"

namespace sluice::wire {
namespace {

using Bytes = std::vector<std::byte>;

using Fields = std::vector<std::string>;

// A message without its type: its fields, and what encode_body() makes of it. `status` is that of
// decode_body().
struct Message {
  Fields fields;
  Bytes body;
  Status status = Status(Errc::kOk);
};

// What the tests do with one type of message. Functions instead of typed tests, which take half a minute to
// compile.
struct Codec {
  FrameType type;
  bool marked_plus;     // in protocol.md section 4
  bool keeps_trailing;  // the fields of a later version
  Fields fields_unset;
  Message (*random)(std::mt19937_64& random);
  Message (*maximal)();
  Message (*decode)(std::span<const std::byte> body);
  Bytes (*frame)(const Bytes& body);
  std::set<size_t> (*sizes_without_appended)(const Bytes& body);
};

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

template <typename M, typename Visitor>
Message visited(Visitor& fields) {
  M m;
  M::visit(m, fields);
  return {test::fields_of(m), encode_body(m)};
}

template <typename M>
M decoded(const Bytes& body) {
  M m;
  EXPECT_TRUE(decode_body(body, m).ok());
  return m;
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

template <typename M>
Codec codec(bool marked_plus) {
  return {.type = M::kType, .marked_plus = marked_plus, .keeps_trailing = requires(M m){m.trailing;
}
, .fields_unset = test::fields_of(M{}),
  .random =
      [](std::mt19937_64& random) {
        test::RandomFields fields(random);
        return visited<M>(fields);
      },
  .maximal =
      [] {
        MaximalFields fields;
        return visited<M>(fields);
      },
  .decode =
      [](std::span<const std::byte> body) {
        M m;
        const Status status = decode_body(body, m);
        return Message{test::fields_of(m), encode_body(m), status};
      },
  .frame = [](const Bytes& body) { return encode_message(decoded<M>(body), 0xaabbccdd); },
  .sizes_without_appended = [](const Bytes& body) { return sizes_without_appended(decoded<M>(body)); }
};  // namespace
}  // namespace sluice::wire

template <typename... Messages>
std::vector<Codec> codecs(bool marked_plus) {
  return {codec<Messages>(marked_plus)...};
}

class EveryMessage : public testing::TestWithParam<Codec> {
 protected:
  Message random_message() { return GetParam().random(random_); }
  static Message decode(std::span<const std::byte> body) { return GetParam().decode(body); }

 private:
  std::mt19937_64 random_{static_cast<uint64_t>(GetParam().type)};
};

std::string name_of(const testing::TestParamInfo<Codec>& info) {
  return to_string(info.param.type);
}

INSTANTIATE_TEST_SUITE_P(MarkedPlus, EveryMessage,
                         testing::ValuesIn(codecs<Hello, Welcome, Refused, Heartbeat, Leave, LeaveAck,
                                                  DrainNotice, Pair, Paired, Gather, Gathered>(true)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(
    OfOneSize, EveryMessage,
    testing::ValuesIn(codecs<Join, Joined, Attach, Attached, Vote, Verdict, Commit, Abort, StatusQuery,
                             StatusReply, VerdictQuery, Stream, StreamOffer, StreamAnswer, Resume, ResumeAck,
                             Suspect, ViewQuery, ViewAnswer, ViewCommit, ViewKnown, RateChanges>(false)),
    name_of);

TEST_P(EveryMessage, RoundTrips) {
  for (int round = 0; round < 50; ++round) {
    const Message sent = random_message();
    const Message received = decode(sent.body);
    ASSERT_TRUE(received.status.ok());
    ASSERT_EQ(received.fields, sent.fields);
    ASSERT_EQ(received.body, sent.body);
  }
}

// Bodies of up to 16 KiB make every size too slow under an emulator, so the middle of a long list is sampled.
size_t next_truncation(size_t size, size_t whole) {
  constexpr size_t kEverySize = 512;
  constexpr size_t kStep = 61;  // prime, so that cuts fall on every byte of an item
  return size < kEverySize || size + kStep + kEverySize > whole ? size + 1 : size + kStep;
}

TEST_P(EveryMessage, IsRefusedWhenTruncated) {
  for (int round = 0; round < 3; ++round) {
    const Bytes body = random_message().body;
    const std::set<size_t> without_appended = GetParam().sizes_without_appended(body);
    for (size_t size = 0; size < body.size(); size = next_truncation(size, body.size())) {
      const Message received = decode(std::span(body).first(size));
      if (without_appended.contains(size)) {
        ASSERT_TRUE(received.status.ok());
        continue;
      }
      ASSERT_EQ(received.status, Status(Errc::kBadLength)) << size;
      ASSERT_EQ(received.fields, GetParam().fields_unset) << "changed by a refused body of " << size;
    }
  }
}

TEST_P(EveryMessage, MayGrowIfMarkedWithPlus) {
  Message sent = random_message();
  Bytes& body = sent.body;
  Fields& expected = sent.fields;
  if (GetParam().keeps_trailing) expected.pop_back();
  for (const size_t more : {1, 2, 100}) {
    body.resize(body.size() + more, std::byte{0xa5});
    Message received = decode(body);
    if (!GetParam().marked_plus) {
      EXPECT_EQ(received.status, Status(Errc::kBadLength));
      continue;
    }
    ASSERT_TRUE(received.status.ok());
    if (GetParam().keeps_trailing) {
      EXPECT_EQ(received.body, body) << "a proof covers the fields of a later version";
      received.fields.pop_back();
    }
    EXPECT_EQ(received.fields, expected);
  }
}

TEST_P(EveryMessage, FitsAControlFrameAtItsLimits) {
  const Message sent = GetParam().maximal();
  EXPECT_LE(sent.body.size(), kMaxControlPayload);
  const Message received = decode(sent.body);
  EXPECT_TRUE(received.status.ok());
  EXPECT_EQ(received.fields, sent.fields);
}

TEST_P(EveryMessage, IsFramedWithBothCrcs) {
  const Bytes body = random_message().body;
  const Bytes frame = GetParam().frame(body);
  ASSERT_EQ(frame.size(), kHeaderBytes + body.size());
  const ConstHeaderBytes header(frame.data(), kHeaderBytes);
  FrameHeader h;
  ASSERT_TRUE(decode_header(header, h).ok());
  EXPECT_TRUE(verify_header(header, {}).ok());
  EXPECT_EQ(h, (FrameHeader{.type = GetParam().type,
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
