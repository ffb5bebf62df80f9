// What look_up_srv() rejects without sending a query. tests/deploy/discover_dns_test.py runs it against
// servers.
#include "config/discovery/srv_lookup.h"

#include <gtest/gtest.h>

#include "core/clock.h"

namespace sluice::config::discovery {
namespace {

Errc error_of(const std::string& name, const std::string& server, Nanos timeout) {
  const auto found = look_up_srv(name, server, monotonic_now() + timeout);
  return found ? Errc::kOk : found.error().code;
}

TEST(SrvLookup, RejectsNamesThatAreNotDnsNames) {
  for (const std::string& bad : {std::string("a..b"), std::string(64, 'a') + ".b"})
    EXPECT_EQ(error_of(bad, "127.0.0.1:1", kSecond), Errc::kInvalidArgument) << bad;
}

TEST(SrvLookup, RejectsServersThatAreNotAddresses) {
  for (const char* bad : {"dns.example", "127.0.0.1:x", "["})
    EXPECT_EQ(error_of("_data._tcp.r.", bad, kSecond), Errc::kInvalidArgument) << bad;
}

TEST(SrvLookup, AnswersAtOnceAfterItsDeadline) {
  const Nanos begin = monotonic_now();
  EXPECT_EQ(error_of("_data._tcp.r.", "127.0.0.1:1", 0), Errc::kTimeout);
  EXPECT_LT(monotonic_now() - begin, 10 * kSecond);
}

}  // namespace
}  // namespace sluice::config::discovery
