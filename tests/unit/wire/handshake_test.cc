#include "wire/handshake.h"

#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "tests/support/message_fields.h"

namespace sluice::wire {
namespace {

constexpr uint64_t kViewHash = 0xc0ffee0123456789;

std::vector<std::byte> key() {
  std::vector<std::byte> out;
  for (int i = 0; i < 32; ++i) out.push_back(static_cast<std::byte>(i));
  return out;
}

Hello hello() {
  Hello m{.purpose = Purpose::kLane, .rank = 2, .ranks = 4, .lane = 3};
  std::iota(m.session.bytes.begin(), m.session.bytes.end(), uint8_t{0x10});
  m.incarnation = 0x0102030405060708;
  m.features = 0x1112131415161718;
  std::iota(m.nonce.begin(), m.nonce.end(), uint8_t{0x40});
  m.job = "train-7";
  m.tenant = "acme";
  return m;
}

Welcome welcome() {
  Welcome m{.version = 1, .proof = 1, .lanes = 4, .max_slot_bytes = 0x40000, .reducer = 0xa1a2a3a4a5a6a7a8};
  std::iota(m.nonce.begin(), m.nonce.end(), uint8_t{0x80});
  m.software = "sluice 0.1.0";
  return m;
}

std::string hex(const std::array<uint8_t, 32>& d) {
  return test::hex_text(reinterpret_cast<const std::byte*>(d.data()), d.size());
}

TEST(Versions, SelectTheHighestCommonVersion) {
  static_assert(kVersionMin == 1 && kVersionMax == 1, "a new version needs new rows here");
  const struct {
    uint8_t min, max;
    std::optional<uint8_t> common;
  } table[] = {
      {1, 1, 1},    {1, 2, 1},  {0, 1, 1},  {1, 255, 1},  {0, 255, 1},    {2, 2, {}},
      {2, 255, {}}, {0, 0, {}}, {2, 1, {}}, {255, 0, {}}, {255, 255, {}},
  };
  for (const auto& row : table)
    EXPECT_EQ(common_version(row.min, row.max), row.common) << int{row.min} << ".." << int{row.max};
}

TEST(Versions, ArePrintedAsARange) {
  EXPECT_EQ(version_range(1, 1), "1");
  EXPECT_EQ(version_range(1, 3), "1-3");
  EXPECT_EQ(version_range(0, 255), "0-255");
}

// The expected values of the next three tests are from Python's hmac over manually assembled bytes.
TEST(JobToken, IsAnHmacOfTheJob) {
  EXPECT_EQ(hex(job_token(key(), "train-7")),
            "23948c6d3b445996ddab54536e4aae8034873fdcbb574f0704e82f03ed29431f");
  EXPECT_EQ(hex(job_token(key(), "")), "5a5c114e821cbc525c31bfd410694afae60ce41e6bfdf7d7cabca23cc17cc6cf");
}

TEST(Proofs, AreHmacsOfTheBodies) {
  const Digest token = job_token(key(), "train-7");
  EXPECT_EQ(hex(server_proof(token, hello(), welcome())),
            "4e80ee71bb52377076e54423f59d749ac6bc7621c1c3011ef23fbb676bacebcd");
  EXPECT_EQ(hex(client_proof(token, hello(), welcome(), kViewHash)),
            "f5248b677865d860f19f6957713ad29f458ae7934bb962dc5794815aad89356e");
}

TEST(Proofs, CoverFieldsOfALaterVersion) {
  auto hello_body = encode_body(hello());
  for (const int b : {8, 7, 6, 5, 4, 3, 2, 1, 5, 6, 7}) hello_body.push_back(static_cast<std::byte>(b));
  Welcome with_rate = welcome();
  with_rate.link_rate = 25'000'000'000;
  auto welcome_body = encode_body(with_rate);
  welcome_body.push_back(std::byte{9});
  Hello h;
  Welcome w;
  ASSERT_TRUE(decode_body(hello_body, h).ok());
  ASSERT_TRUE(decode_body(welcome_body, w).ok());
  EXPECT_EQ(hex(server_proof(job_token(key(), "train-7"), h, w)),
            "48bca5a775572b1c8b3c1c28abb7362ca44cf8f7006a94eb973f2e36d879f6ca");
}

// WELCOME as an implementation without link_rate knows it.
struct EarlierWelcome {
  static constexpr bool kMayGrow = true;
  Welcome fields;
  static void visit(auto& m, auto& v) {
    auto& f = m.fields;
    v(f.version), v(f.proof), v(f.lanes), v(f.max_slot_bytes), v(f.reducer), v(f.features), v(f.nonce),
        v(f.mac);
    v.text(f.software, kMaxJobText), v.rest(f.trailing);
  }
};

TEST(Welcome, WithALinkRateIsProvenToAnEarlierClient) {
  Welcome sent = welcome();
  sent.link_rate = 25'000'000'000;
  EarlierWelcome received;
  ASSERT_TRUE(decode_body(encode_body(sent), received).ok());
  EXPECT_EQ(received.fields.trailing.size(), 8u);
  EXPECT_FALSE(received.fields.link_rate);
  EXPECT_EQ(encode_body(received), encode_body(sent));
  const Digest token = job_token(key(), "train-7");
  // The proof of what the client has decoded.
  EXPECT_EQ(server_proof(token, hello(), received.fields), server_proof(token, hello(), sent));
  EXPECT_NE(server_proof(token, hello(), welcome()), server_proof(token, hello(), sent));
}

TEST(Welcome, OfAnEarlierReducerHasNoLinkRate) {
  const EarlierWelcome sent{welcome()};
  Welcome received;
  received.link_rate = 1;
  ASSERT_TRUE(decode_body(encode_body(sent), received).ok());
  EXPECT_FALSE(received.link_rate);
  EXPECT_TRUE(received.trailing.empty());
  EXPECT_EQ(encode_body(received), encode_body(sent)) << "the proof of the reducer covers this body";
}

TEST(Welcome, KeepsFieldsBehindTheLinkRate) {
  Welcome sent = welcome();
  sent.link_rate = 1000;
  sent.trailing = {std::byte{7}, std::byte{8}};
  Welcome received;
  ASSERT_TRUE(decode_body(encode_body(sent), received).ok());
  EXPECT_EQ(received.link_rate, 1000u);
  EXPECT_EQ(received.trailing, sent.trailing);
  const auto body = encode_body(sent);
  for (size_t missing = 3; missing < 10; ++missing)  // the rate itself is incomplete
    EXPECT_EQ(decode_body(std::span(body).first(body.size() - missing), received), Status(Errc::kBadLength));
}

TEST(KeyId, IsAnHmacOfTheNonce) {
  const Digest token = job_token(key(), "train-7");
  EXPECT_EQ(key_id(token, hello().nonce), 0xda92ea053e7ccc2d);
  Nonce other = hello().nonce;
  other[0] ^= 1;
  EXPECT_NE(key_id(token, other), key_id(token, hello().nonce)) << "connections cannot be linked";
  EXPECT_NE(key_id(job_token(key(), "train-8"), other), key_id(token, other));
}

// An earlier reducer keeps the key id with the rest, and so proves the same body.
TEST(KeyId, IsProvenByAnEarlierReducer) {
  Hello sent = hello();
  sent.key_id = 0x0102030405060708;
  Hello earlier = hello();
  for (const int b : {8, 7, 6, 5, 4, 3, 2, 1}) earlier.trailing.push_back(static_cast<std::byte>(b));
  const Digest token = job_token(key(), "train-7");
  EXPECT_EQ(encode_body(earlier), encode_body(sent));
  EXPECT_EQ(server_proof(token, earlier, welcome()), server_proof(token, sent, welcome()));
  Hello received;
  ASSERT_TRUE(decode_body(encode_body(hello()), received).ok());
  EXPECT_FALSE(received.key_id) << "an earlier client sends none";
}

TEST(JobToken, DiffersByJobAndByKey) {
  const Digest token = job_token(key(), "train-7");
  EXPECT_NE(token, job_token(key(), "train-8"));
  EXPECT_NE(token, job_token(key(), "train-7 "));
  EXPECT_NE(token, job_token(key(), ""));
  auto other_key = key();
  other_key[31] ^= std::byte{1};
  EXPECT_NE(token, job_token(other_key, "train-7"));
}

struct Change {
  const char* name;
  std::function<void(Hello&, Welcome&)> apply;
};

TEST(Proofs, DifferWithEveryCoveredField) {
  const Change changes[] = {
      {"min_version", [](Hello& h, Welcome&) { h.min_version = 0; }},
      {"max_version", [](Hello& h, Welcome&) { h.max_version = 2; }},
      {"purpose", [](Hello& h, Welcome&) { h.purpose = Purpose::kControl; }},
      {"rank", [](Hello& h, Welcome&) { h.rank = 1; }},
      {"ranks", [](Hello& h, Welcome&) { h.ranks = 5; }},
      {"lane", [](Hello& h, Welcome&) { h.lane = 0; }},
      {"session", [](Hello& h, Welcome&) { h.session.bytes[15] = 0; }},
      {"incarnation", [](Hello& h, Welcome&) { h.incarnation = 0; }},
      {"features of the client", [](Hello& h, Welcome&) { h.features = 0; }},
      {"nonce of the client", [](Hello& h, Welcome&) { h.nonce[31] = 0; }},
      {"job", [](Hello& h, Welcome&) { h.job = "train-8"; }},
      {"tenant", [](Hello& h, Welcome&) { h.tenant = ""; }},
      {"boundary of job and tenant", [](Hello& h, Welcome&) { h.job = "train-7a", h.tenant = "cme"; }},
      {"key_id", [](Hello& h, Welcome&) { h.key_id = 1; }},
      {"appended to HELLO", [](Hello& h, Welcome&) { h.trailing.push_back(std::byte{0}); }},
      {"version", [](Hello&, Welcome& w) { w.version = 2; }},
      {"proof", [](Hello&, Welcome& w) { w.proof = 0; }},
      {"lanes", [](Hello&, Welcome& w) { w.lanes = 1; }},
      {"max_slot_bytes", [](Hello&, Welcome& w) { w.max_slot_bytes = 1; }},
      {"reducer", [](Hello&, Welcome& w) { w.reducer = 1; }},
      {"features of the reducer", [](Hello&, Welcome& w) { w.features = 1; }},
      {"nonce of the reducer", [](Hello&, Welcome& w) { w.nonce[0] = 0; }},
      {"software", [](Hello&, Welcome& w) { w.software = "x"; }},
      {"link_rate", [](Hello&, Welcome& w) { w.link_rate = 1; }},
      {"appended to WELCOME", [](Hello&, Welcome& w) { w.trailing.push_back(std::byte{0}); }},
  };
  const Digest token = job_token(key(), "train-7");
  const Mac server = server_proof(token, hello(), welcome());
  const Mac client = client_proof(token, hello(), welcome(), kViewHash);
  for (const Change& change : changes) {
    Hello h = hello();
    Welcome w = welcome();
    change.apply(h, w);
    EXPECT_NE(server_proof(token, h, w), server) << change.name;
    EXPECT_NE(client_proof(token, h, w, kViewHash), client) << change.name;
  }
  EXPECT_NE(client_proof(token, hello(), welcome(), kViewHash + 1), client);
  const Digest other = job_token(key(), "train-8");
  EXPECT_NE(server_proof(other, hello(), welcome()), server);
  EXPECT_NE(client_proof(other, hello(), welcome(), kViewHash), client);
}

TEST(Proofs, ExcludeTheMacItself) {
  const Digest token = job_token(key(), "train-7");
  Welcome signed_welcome = welcome();
  signed_welcome.mac = server_proof(token, hello(), welcome());
  EXPECT_EQ(server_proof(token, hello(), signed_welcome), signed_welcome.mac);
  EXPECT_EQ(client_proof(token, hello(), signed_welcome, 0), client_proof(token, hello(), welcome(), 0));
}

TEST(Proofs, DifferBetweenServerAndClient) {
  const Digest token = job_token(key(), "train-7");
  EXPECT_NE(server_proof(token, hello(), welcome()), client_proof(token, hello(), welcome(), 0));
}

TEST(TlsKey, IsDerivedFromTheToken) {
  Digest token;
  std::iota(token.begin(), token.end(), uint8_t{0});
  const Digest made = tls_key(token);
  EXPECT_EQ(made[0], 0x55);
  EXPECT_EQ(made[1], 0xb0);
  EXPECT_EQ(made[31], 0x8e);
}

TEST(TlsBinding, CoversBothBodies) {
  Welcome w;
  const Digest bound = tls_binding(hello(), w);
  Hello without = hello();
  without.features ^= kFeatureTls;
  EXPECT_NE(tls_binding(without, w), bound);
  w.features ^= kFeatureTls;
  EXPECT_NE(tls_binding(hello(), w), bound);
}

}  // namespace
}  // namespace sluice::wire
