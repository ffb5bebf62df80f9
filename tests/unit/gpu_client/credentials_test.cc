#include "gpu_client/engine/join/credentials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "config/secret_file.h"
#include "wire/handshake.h"

namespace sluice::engine {
namespace {

using ::testing::HasSubstr;

std::string write_secret(const char* name, const config::Secret& secret) {
  const std::string path = ::testing::TempDir() + name;
  std::ofstream(path) << config::secret_text(secret);
  return path;
}

TEST(Credentials, AreOptional) {
  auto token = load_token("", "", "default");
  ASSERT_TRUE(token.has_value());
  EXPECT_FALSE(token->has_value());
}

TEST(Credentials, AreDerivedFromTheKeyOrReadFromTheTokenFile) {
  config::Secret key{};
  key[0] = 1;
  const auto key_file = write_secret("sluice_key", key);
  const auto expected = wire::job_token(std::as_bytes(std::span(key)), "train");
  auto from_key = load_token(key_file, "", "train");
  ASSERT_TRUE(from_key.has_value()) << from_key.error().text;
  EXPECT_EQ(**from_key, expected);
  auto from_token = load_token("", write_secret("sluice_token", expected), "train");
  ASSERT_TRUE(from_token.has_value()) << from_token.error().text;
  EXPECT_EQ(**from_token, expected);
  EXPECT_NE(**load_token(key_file, "", "other"), expected);
}

TEST(Credentials, RejectTwoFilesAndAMissingFile) {
  EXPECT_THAT(load_token("a", "b", "j").error().text, HasSubstr("both set"));
  EXPECT_THAT(load_token("/nonexistent/key", "", "j").error().text, HasSubstr("/nonexistent/key"));
}

}  // namespace
}  // namespace sluice::engine
