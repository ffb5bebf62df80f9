#include "gpu_client/engine/join/credentials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "config/secret_file.h"
#include "gpu_client/engine/join/handshake.h"
#include "tests/support/temporary_file.h"
#include "wire/handshake.h"

namespace sluice::engine {
namespace {

using ::sluice::test::TemporaryFile;
using ::testing::AllOf;
using ::testing::HasSubstr;

config::Secret secret(uint8_t first) {
  config::Secret key{};
  key[0] = first;
  return key;
}

wire::Digest token_of(const config::Secret& key, const std::string& job) {
  return wire::job_token(std::as_bytes(std::span(key)), job);
}

class Credentials : public ::testing::Test {
 protected:
  Credentials() { clear(); }
  ~Credentials() override { clear(); }
  static void clear() {
    for (const char* name : {"SLUICE_JOB", "SLUICE_TENANT", "SLUICE_KEY_FILE", "SLUICE_TOKEN_FILE",
                             "SLUICE_TLS", "SLUICE_TLS_CA", "SLUICE_TLS_CERT", "SLUICE_TLS_KEY"})
      ::unsetenv(name);
  }
  static void set(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); }
  static Identity read(const CredentialOptions& options = {}) {
    Identity identity;
    const auto done = read_credentials(options, identity);
    EXPECT_TRUE(done.has_value()) << done.error().text;
    return identity;
  }
  static std::string error(const CredentialOptions& options = {}) {
    Identity identity;
    const auto done = read_credentials(options, identity);
    EXPECT_FALSE(done.has_value());
    return done ? "" : done.error().text;
  }
};

TEST_F(Credentials, AreOptional) {
  const Identity identity = read();
  EXPECT_EQ(identity.job, "default");
  EXPECT_EQ(identity.tenant, "");
  EXPECT_FALSE(identity.token.has_value());
  EXPECT_EQ(identity.tls, nullptr);
}

TEST_F(Credentials, ComeFromOptionsOrVariables) {
  const TemporaryFile key(config::secret_text(secret(1)));
  const TemporaryFile token(config::secret_text(token_of(secret(1), "train")));
  const std::string& key_path = key.path();
  const std::string& token_path = token.path();
  const auto expected = token_of(secret(1), "train");
  EXPECT_EQ(read({.job = "train", .key_file = key_path.c_str()}).token, expected);
  EXPECT_EQ(read({.job = "train", .token_file = token_path.c_str()}).token, expected);
  EXPECT_NE(read({.job = "other", .key_file = key_path.c_str()}).token, expected);
  set("SLUICE_JOB", "train"), set("SLUICE_TENANT", "acme"), set("SLUICE_KEY_FILE", key_path);
  EXPECT_EQ(read().token, expected);
  EXPECT_EQ(read().tenant, "acme");
  set("SLUICE_KEY_FILE", ""), set("SLUICE_TOKEN_FILE", token_path);
  EXPECT_EQ(read().token, expected);
}

TEST_F(Credentials, AnOptionReplacesTheVariablesOfItsPair) {
  const TemporaryFile key(config::secret_text(secret(1)));
  const std::string& path = key.path();
  set("SLUICE_JOB", "train"), set("SLUICE_TENANT", "acme"), set("SLUICE_TOKEN_FILE", "/nonexistent/token");
  EXPECT_EQ(read({.job = "mine", .tenant = "", .key_file = path.c_str()}).token, token_of(secret(1), "mine"));
  EXPECT_EQ(read({.tenant = "", .key_file = path.c_str()}).tenant, "");
  // An empty option switches off what the variable sets.
  EXPECT_FALSE(read({.key_file = ""}).token.has_value());
  EXPECT_EQ(read({.job = "", .key_file = ""}).job, "default");
}

TEST_F(Credentials, NameTheOptionOrVariableOfAnError) {
  EXPECT_THAT(error({.key_file = "a", .token_file = "b"}), HasSubstr("key_file and token_file are both set"));
  EXPECT_THAT(error({.key_file = "/nonexistent/key"}), HasSubstr("key_file: cannot read /nonexistent/key"));
  const std::string long_name(300, 'j');
  EXPECT_THAT(error({.job = long_name.c_str()}), HasSubstr("job has 300 characters"));
  set("SLUICE_KEY_FILE", "/nonexistent/key");
  EXPECT_THAT(error(), HasSubstr("SLUICE_KEY_FILE: cannot read /nonexistent/key"));
  set("SLUICE_TOKEN_FILE", "b");
  EXPECT_THAT(error(), HasSubstr("SLUICE_KEY_FILE and SLUICE_TOKEN_FILE are both set"));
  clear(), set("SLUICE_TENANT", long_name);
  EXPECT_THAT(error(), HasSubstr("SLUICE_TENANT has 300 characters"));
  clear(), set("SLUICE_TLS", "yes");
  EXPECT_THAT(error(), HasSubstr("SLUICE_TLS: expected off, on or require, found \"yes\""));
}

TEST_F(Credentials, FilesOfTlsNeedTls) {
  for (const char* name : {"SLUICE_TLS_CA", "SLUICE_TLS_CERT", "SLUICE_TLS_KEY"}) {
    clear(), set(name, "/nonexistent/file");
    EXPECT_THAT(error(), AllOf(HasSubstr(name), HasSubstr("set SLUICE_TLS=require"))) << name;
    EXPECT_EQ(read({.tls = "off"}).tls, nullptr);
    set("SLUICE_TLS", "off");
    EXPECT_EQ(read().tls, nullptr);
  }
  EXPECT_THAT(error({.tls = "on", .tls_key = "k"}), HasSubstr("tls_key is set without tls_cert"));
  clear(), set("SLUICE_TLS", "on"), set("SLUICE_TLS_KEY", "k");
  EXPECT_THAT(error(), HasSubstr("SLUICE_TLS_KEY is set without SLUICE_TLS_CERT"));
}

}  // namespace
}  // namespace sluice::engine
