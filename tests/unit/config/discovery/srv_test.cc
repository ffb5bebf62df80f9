#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/discovery/resolv_conf.h"
#include "config/discovery/srv_message.h"

namespace sluice::config::discovery {
namespace {

using ::testing::ElementsAre;

DnsBytes bytes(std::string_view text) {
  return {text.begin(), text.end()};
}

void add(DnsBytes& to, std::string_view more) {
  to.insert(to.end(), more.begin(), more.end());
}

// A reply with id 0x1234 and these flags and counts; the question is "a", type SRV.
DnsBytes reply(uint16_t flags, uint16_t answers) {
  DnsBytes out{0x12,
               0x34,
               static_cast<uint8_t>(flags >> 8),
               static_cast<uint8_t>(flags & 0xff),
               0,
               1,
               static_cast<uint8_t>(answers >> 8),
               static_cast<uint8_t>(answers & 0xff),
               0,
               0,
               0,
               0};
  add(out, std::string_view("\1a\0\0\41\0\1", 7));
  return out;
}

// An answer for the question's name: port 7470, target "r-1" and then the question's name.
constexpr std::string_view kRecord("\xc0\x0c\0\41\0\1\0\0\0\5\0\14\0\0\0\144\x1d\x2e\3r-1\xc0\x0c", 24);

TEST(SrvMessage, AsksForOneName) {
  const auto query = srv_query("_data._tcp.reducer", 0x1234);
  ASSERT_TRUE(query.has_value());
  DnsBytes wanted = bytes(std::string_view("\x12\x34\1\0\0\1\0\0\0\0\0\1", 12));
  add(wanted, std::string_view("\5_data\4_tcp\7reducer\0\0\41\0\1", 24));
  add(wanted, std::string_view("\0\0\51\4\xd0\0\0\0\0\0\0", 11));
  EXPECT_EQ(*query, wanted);
  for (const std::string& bad : {std::string(), std::string("a..b"), std::string(".a"), std::string(64, 'a'),
                                 std::string(300, 'a') + ".b"}) {
    EXPECT_FALSE(srv_query(bad, 1).has_value()) << bad;
  }
}

TEST(SrvMessage, ReadsRecordsWithCompressedNames) {
  DnsBytes raw = reply(0x8180, 2);
  add(raw, std::string_view("\xc0\x0c\0\1\0\1\0\0\0\5\0\4\1\2\3\4", 16));  // of another type: passed over
  add(raw, kRecord);
  const auto read = read_srv_reply(raw, 0x1234);
  ASSERT_TRUE(read.has_value()) << read.error().text;
  EXPECT_EQ(read->kind, SrvReply::Kind::kRecords);
  EXPECT_THAT(read->records, ElementsAre(SrvRecord{.target = "r-1.a", .port = 7470}));
}

TEST(SrvMessage, TellsNothingCutAndRefusedApart) {
  EXPECT_EQ(read_srv_reply(reply(0x8180, 0), 0x1234)->kind, SrvReply::Kind::kNothing);
  EXPECT_EQ(read_srv_reply(reply(0x8183, 0), 0x1234)->kind, SrvReply::Kind::kNothing);
  EXPECT_EQ(read_srv_reply(reply(0x8380, 0), 0x1234)->kind, SrvReply::Kind::kCut);
  const auto refused = read_srv_reply(reply(0x8185, 0), 0x1234);
  EXPECT_EQ(refused->kind, SrvReply::Kind::kRefused);
  EXPECT_EQ(refused->code, 5);
}

TEST(SrvMessage, TakesNobodyElsesAnswer) {
  EXPECT_FALSE(read_srv_reply(reply(0x8180, 0), 0x1235).has_value());
  EXPECT_FALSE(read_srv_reply(reply(0x0100, 0), 0x1234).has_value()) << "a query";
  EXPECT_FALSE(read_srv_reply(bytes("short"), 0x1234).has_value());
}

TEST(SrvMessage, RefusesWhatIsMalformedWhereverItEnds) {
  DnsBytes whole = reply(0x8180, 1);
  add(whole, kRecord);
  for (size_t n = 12; n < whole.size(); ++n)
    EXPECT_FALSE(read_srv_reply(std::span(whole).first(n), 0x1234).has_value()) << n;
  DnsBytes loop = reply(0x8180, 1);
  add(loop, std::string_view("\xc0\x13\0\41", 4));  // a name that points to itself
  EXPECT_FALSE(read_srv_reply(loop, 0x1234).has_value());
  DnsBytes ahead = reply(0x8180, 1);
  add(ahead, std::string_view("\xc0\x20\0\41\0\1\0\0\0\5\0\0", 12));  // to what comes behind it
  EXPECT_FALSE(read_srv_reply(ahead, 0x1234).has_value());
  DnsBytes longer = whole;  // the record says that it is longer than its fields
  longer[whole.size() - kRecord.size() + 11] = 13;
  longer.push_back(0);
  EXPECT_FALSE(read_srv_reply(longer, 0x1234).has_value());
}

TEST(ResolvConf, IsReadAsTheCLibraryDoes) {
  const auto conf = parse_resolv_conf(
      "# made by kubelet\nnameserver 10.96.0.10 # cluster\nnameserver fd00::a\nsearch x\n"
      "search ml.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5 timeout:1\nnameserver "
      "bad\n");
  EXPECT_THAT(conf.servers,
              ElementsAre(NameServer{.address = "10.96.0.10"}, NameServer{.address = "fd00::a"}));
  EXPECT_THAT(conf.search, ElementsAre("ml.svc.cluster.local", "svc.cluster.local", "cluster.local"));
  EXPECT_EQ(conf.ndots, 5u);
  EXPECT_THAT(parse_resolv_conf("").servers, ElementsAre(NameServer{.address = "127.0.0.1"}));
}

TEST(ResolvConf, PutsNamesInTheirOrder) {
  const ResolvConf conf{.servers = {}, .search = {"ml.svc.cluster.local", "cluster.local."}, .ndots = 5};
  EXPECT_THAT(candidates("_data._tcp.r", conf),
              ElementsAre("_data._tcp.r.ml.svc.cluster.local", "_data._tcp.r.cluster.local", "_data._tcp.r"));
  EXPECT_THAT(candidates("_data._tcp.r.ml.svc.x", conf),
              ElementsAre("_data._tcp.r.ml.svc.x", "_data._tcp.r.ml.svc.x.ml.svc.cluster.local",
                          "_data._tcp.r.ml.svc.x.cluster.local"));
  EXPECT_THAT(candidates("_data._tcp.r.", conf), ElementsAre("_data._tcp.r"));
}

TEST(ResolvConf, TakesAServerWithItsPort) {
  EXPECT_EQ(*parse_name_server("127.0.0.1:15353"), (NameServer{.address = "127.0.0.1", .port = 15353}));
  EXPECT_EQ(*parse_name_server("10.0.0.1"), (NameServer{.address = "10.0.0.1", .port = 53}));
  EXPECT_EQ(*parse_name_server("[fd00::a]:54"), (NameServer{.address = "fd00::a", .port = 54}));
  EXPECT_EQ(*parse_name_server("[fd00::a]"), (NameServer{.address = "fd00::a", .port = 53}));
  for (const char* bad : {"", "dns.example", "10.0.0.1:0", "10.0.0.1:x", "fd00::a"})
    EXPECT_FALSE(parse_name_server(bad).has_value()) << bad;
}

}  // namespace
}  // namespace sluice::config::discovery
