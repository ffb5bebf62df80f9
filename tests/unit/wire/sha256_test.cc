#include "wire/sha256.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "tests/support/message_fields.h"

namespace sluice::wire {
namespace {

std::vector<std::byte> bytes_of(std::string_view text) {
  std::vector<std::byte> out;
  for (const char c : text) out.push_back(static_cast<std::byte>(c));
  return out;
}

std::string hex(const Digest& d) {
  return test::hex_text(reinterpret_cast<const std::byte*>(d.data()), d.size());
}

std::string sha256_of(std::string_view text) {
  return hex(sha256(bytes_of(text)));
}

std::string hmac_of(const std::string& key, const std::string& data) {
  return hex(hmac_sha256(bytes_of(key), bytes_of(data)));
}

// The examples published with FIPS 180.
TEST(Sha256, HashesThePublishedExamples) {
  EXPECT_EQ(sha256_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_of("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmno"
                      "ijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu"),
            "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
  EXPECT_EQ(sha256_of(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// Hashes n bytes of value n for each n in 0..259, then the digests together. The expected value is from
// Python's hashlib. The lengths cover every position of the padding in a block.
TEST(Sha256, PadsEveryLengthLikeHashlib) {
  std::vector<std::byte> digests;
  for (size_t n = 0; n < 260; ++n) {
    const Digest d = sha256(std::vector<std::byte>(n, static_cast<std::byte>(n & 0xff)));
    for (const uint8_t b : d) digests.push_back(static_cast<std::byte>(b));
  }
  EXPECT_EQ(hex(sha256(digests)), "d1431305b5aa0e24d0a8c8010da99ed034d65b853a9776b23bb2025a83f17216");
}

// RFC 4231 section 4. Cases 6 and 7 have keys of 131 bytes, longer than a block.
TEST(HmacSha256, MatchesTheTestCasesOfRfc4231) {
  EXPECT_EQ(hmac_of(std::string(20, '\x0b'), "Hi There"),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hmac_of("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hmac_of(std::string(20, '\xaa'), std::string(50, '\xdd')),
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  std::string counted;
  for (char c = 1; c <= 25; ++c) counted += c;
  EXPECT_EQ(hmac_of(counted, std::string(50, '\xcd')),
            "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");
  EXPECT_EQ(hmac_of(std::string(20, '\x0c'), "Test With Truncation").substr(0, 32),
            "a3b6167473100ee06e0c796c2955552b");
  const std::string long_key(131, '\xaa');
  EXPECT_EQ(hmac_of(long_key, "Test Using Larger Than Block-Size Key - Hash Key First"),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  EXPECT_EQ(hmac_of(long_key,
                    "This is a test using a larger than block-size key and a larger than block-size data. "
                    "The key needs to be hashed before being used by the HMAC algorithm."),
            "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

TEST(HmacSha256, DoesNotHashAKeyOfOneBlock) {
  const std::string block(64, 'k');
  EXPECT_NE(hmac_of(block, "data"), hmac_of(block + '\0', "data"));
  EXPECT_EQ(hmac_of(block.substr(0, 63), "data"), hmac_of(block.substr(0, 63) + '\0', "data"))
      << "a shorter key is padded with zeros";
}

TEST(Digests, DifferInAnyBit) {
  const Digest a = sha256({});
  EXPECT_TRUE(equal_digests(a, a));
  for (size_t bit = 0; bit < 8 * a.size(); ++bit) {
    Digest b = a;
    b[bit / 8] = static_cast<uint8_t>(b[bit / 8] ^ (1u << (bit % 8)));
    EXPECT_FALSE(equal_digests(a, b)) << bit;
  }
}

}  // namespace
}  // namespace sluice::wire
