#include "core/status.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>
#include <string>

#include "core/result.h"

namespace sluice {
namespace {

// All known numbers, found by testing every number that a peer can send, so that a new Errc is covered
// without a change.
std::set<uint16_t> known_numbers() {
  std::set<uint16_t> known;
  for (uint32_t n = 0; n <= std::numeric_limits<uint16_t>::max(); ++n) {
    if (is_known(static_cast<Errc>(n))) known.insert(static_cast<uint16_t>(n));
  }
  return known;
}

TEST(Status, EveryErrcHasAUniqueLowerCaseName) {
  std::set<std::string_view> names;
  const std::set<uint16_t> known = known_numbers();
  for (const uint16_t n : known) {
    const std::string_view name = to_string(static_cast<Errc>(n));
    EXPECT_NE(name, "unknown") << n;
    EXPECT_FALSE(name.empty()) << n;
    EXPECT_TRUE(std::all_of(name.begin(), name.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || c == '_';
    })) << name;
    EXPECT_TRUE(names.insert(name).second) << name << " is the name of two codes";
  }
  EXPECT_GE(known.size(), 43u);
}

// The numbers are part of the protocol and must not change.
TEST(Status, KeepsTheNumbersOfTheProtocol) {
  EXPECT_EQ(static_cast<int>(Errc::kOk), 0);
  EXPECT_EQ(static_cast<int>(Errc::kBadMagic), 16);
  EXPECT_EQ(static_cast<int>(Errc::kUnexpectedMessage), 33);
  EXPECT_EQ(static_cast<int>(Errc::kUnauthenticated), 48);
  EXPECT_EQ(static_cast<int>(Errc::kTooMany), 56);
  EXPECT_EQ(static_cast<int>(Errc::kPeerLost), 64);
  EXPECT_EQ(static_cast<int>(Errc::kShutdown), 69);
  EXPECT_EQ(static_cast<int>(Errc::kInvalidArgument), 80);
  EXPECT_EQ(static_cast<int>(Errc::kExhausted), 84);
  EXPECT_EQ(static_cast<int>(Errc::kAddressInUse), 85);
}

TEST(Status, NamesTheNumberOfANewerPeerUnknown) {
  EXPECT_EQ(to_string(static_cast<Errc>(9999)), "unknown");
  EXPECT_FALSE(is_known(static_cast<Errc>(9999)));
  EXPECT_TRUE(is_known(Errc::kOk));
}

TEST(Status, IsOkOnlyForOk) {
  EXPECT_TRUE(Status().ok());
  EXPECT_TRUE(Status(Errc::kOk).ok());
  EXPECT_FALSE(Status(Errc::kWouldBlock).ok());
  EXPECT_EQ(Status(Errc::kReset).code(), Errc::kReset);
  EXPECT_EQ(Status(Errc::kReset), Status(Errc::kReset));
}

TEST(Result, PutsContextInFrontOfTheText) {
  Result<int> inner = fail(Errc::kReset, "connection refused");
  Result<int> outer = add_context("reducer 10.0.0.2:7470", inner.error());
  EXPECT_EQ(outer.error().code, Errc::kReset);
  EXPECT_EQ(outer.error().text, "reducer 10.0.0.2:7470: connection refused");
}

}  // namespace
}  // namespace sluice
