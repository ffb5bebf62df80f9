#include "gpu_client/engine/join/credentials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/secret_file.h"
#include "tests/support/temporary_file.h"
#include "wire/handshake.h"

namespace sluice::engine {
namespace {

using ::testing::HasSubstr;

using ::sluice::test::TemporaryFile;

TEST(Credentials, AreOptional) {
  auto token = load_token("", "", "default");
  ASSERT_TRUE(token.has_value());
  EXPECT_FALSE(token->has_value());
}

TEST(Credentials, AreDerivedFromTheKeyOrReadFromTheTokenFile) {
  config::Secret key{};
  key[0] = 1;
  const TemporaryFile key_file(config::secret_text(key));
  const auto expected = wire::job_token(std::as_bytes(std::span(key)), "train");
  auto from_key = load_token(key_file.path(), "", "train");
  ASSERT_TRUE(from_key.has_value()) << from_key.error().text;
  EXPECT_EQ(**from_key, expected);
  const TemporaryFile token_file(config::secret_text(expected));
  auto from_token = load_token("", token_file.path(), "train");
  ASSERT_TRUE(from_token.has_value()) << from_token.error().text;
  EXPECT_EQ(**from_token, expected);
  EXPECT_NE(**load_token(key_file.path(), "", "other"), expected);
}

TEST(Credentials, RejectTwoFilesAndAMissingFile) {
  EXPECT_THAT(load_token("a", "b", "j").error().text, HasSubstr("both set"));
  EXPECT_THAT(load_token("/nonexistent/key", "", "j").error().text, HasSubstr("/nonexistent/key"));
}

}  // namespace
}  // namespace sluice::engine
