#include "config/secret_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <thread>

#include "tests/support/temporary_file.h"

namespace sluice::config {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

using test::TemporaryFile;

TEST(SecretFile, ReadsWhatKeygenWrites) {
  Secret secret;
  for (size_t i = 0; i < secret.size(); ++i) secret[i] = static_cast<uint8_t>(i * 37 + 3);
  const std::string text = secret_text(secret);
  EXPECT_EQ(text.size(), 65u);
  auto read = read_secret_file(TemporaryFile(text).path());
  ASSERT_TRUE(read.has_value()) << read.error().text;
  EXPECT_EQ(read->secret, secret);
  EXPECT_EQ(read->warning, "");
}

TEST(SecretFile, WarnsWhenOtherUsersCanReadIt) {
  auto read = read_secret_file(TemporaryFile(secret_text({}), 0644).path());
  ASSERT_TRUE(read.has_value()) << read.error().text;
  EXPECT_THAT(read->warning, HasSubstr("chmod 600"));
}

TEST(SecretFile, RejectsOtherContentsWithoutShowingThem) {
  const std::string good = secret_text({});
  for (const std::string& text : {std::string(), good.substr(1), "0" + good, std::string(63, 'a') + "g",
                                  std::string(4096, '0'), std::string(32, '\x01'), good + good + good}) {
    auto read = read_secret_file(TemporaryFile(text).path());
    ASSERT_FALSE(read.has_value()) << text;
    EXPECT_EQ(read.error().code, Errc::kInvalidArgument);
    EXPECT_THAT(read.error().text, HasSubstr("64 hex digits"));
    EXPECT_THAT(read.error().text, Not(HasSubstr("aaaa")));
  }
}

TEST(SecretFile, ReportsWhyAFileCannotBeRead) {
  auto read = read_secret_file("/nonexistent/key");
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().code, Errc::kSystem);
  EXPECT_THAT(read.error().text, HasSubstr("No such file"));
}

TEST(SecretFile, SaysThatItBeginsWithAByteOrderMark) {
  EXPECT_THAT(read_secret_file(TemporaryFile("\xEF\xBB\xBF" + secret_text({})).path()).error().text,
              HasSubstr("begins with a byte order mark"));
}

TEST(SecretFile, ReadsFromAPipe) {
  const TemporaryFile file("");
  ASSERT_EQ(::unlink(file.path().c_str()), 0);
  ASSERT_EQ(::mkfifo(file.path().c_str(), 0600), 0);
  EXPECT_THAT(read_secret_file(file.path()).error().text, HasSubstr("no process writes to this pipe"));

  const int reader = ::open(file.path().c_str(), O_RDONLY | O_NONBLOCK);  // lets the writer open it
  std::jthread writer([&] {
    std::FILE* const out = std::fopen(file.path().c_str(), "w");
    std::fputs(secret_text({}).c_str(), out);
    std::fclose(out);
  });
  const auto read = read_secret_file(file.path());
  EXPECT_TRUE(read.has_value()) << read.error().text;
  writer.join();
  ::close(reader);
}

// As in a container whose user is not the owner of the mounted file.
TEST(SecretFile, NamesTheUserWhoMayNotReadIt) {
  const TemporaryFile file(secret_text({}), 0000);
  const auto read_as_other = [&] {
    if (::geteuid() == 0 && ::setuid(65532) != 0) ::_exit(2);
    const auto read = read_secret_file(file.path());
    std::fputs(read ? "it was read" : read.error().text.c_str(), stderr);
    ::_exit(0);
  };
  EXPECT_EXIT(read_as_other(), ::testing::ExitedWithCode(0),
              "Permission denied; its owner is user [0-9]+ and its mode 0000, but this process is user "
              "[0-9]+: run it as the owner, chown the file");
}

}  // namespace
}  // namespace sluice::config
