// The parsers of the etcd client: URLs, base64, and JSON with damage at random places.
#include <gtest/gtest.h>

#include <random>

#include "core/text_encoding.h"
#include "store/coordinator/etcd/etcd_options.h"
#include "store/coordinator/etcd/json_answer.h"

namespace sluice::test {
namespace {

using store::parse_etcd_url;
namespace etcd = store::etcd;

TEST(EtcdUrl, ListsEndpoints) {
  const auto options = parse_etcd_url("etcd://10.0.0.2:2400,etcd-b,[fd00::2],[fd00::3]:2401");
  ASSERT_TRUE(options) << options.error().text;
  ASSERT_EQ(options->endpoints.size(), 4U);
  EXPECT_EQ(to_string(options->endpoints[0]), "10.0.0.2:2400");
  EXPECT_EQ(to_string(options->endpoints[1]), "etcd-b:2379");
  EXPECT_EQ(to_string(options->endpoints[2]), "[fd00::2]:2379");
  EXPECT_EQ(to_string(options->endpoints[3]), "[fd00::3]:2401");
  EXPECT_TRUE(parse_etcd_url("http://127.0.0.1:2379"));
}

TEST(EtcdUrl, RefusesOthersWithTheReason) {
  for (const char* url :
       {"", "etcd://", "etcd://,", "etcd://a,", "etcd://a,,b", "10.0.0.2:2379", "etcd://a:0",
        "etcd://a:99999", "etcd://a*2", "etcd://user:secret@a", "etcd://a/b", "etcd://a,a"}) {
    const auto options = parse_etcd_url(url);
    ASSERT_FALSE(options) << url;
    EXPECT_EQ(options.error().code, Errc::kInvalidArgument) << options.error().text;
  }
  const auto secure = parse_etcd_url("https://a:2379");
  ASSERT_FALSE(secure);
  EXPECT_EQ(secure.error().code, Errc::kUnsupported);
}

TEST(Base64, ConvertsBothWays) {
  // RFC 4648, section 10.
  const std::pair<const char*, const char*> known[] = {{"", ""},
                                                       {"f", "Zg=="},
                                                       {"fo", "Zm8="},
                                                       {"foo", "Zm9v"},
                                                       {"foob", "Zm9vYg=="},
                                                       {"fooba", "Zm9vYmE="},
                                                       {"foobar", "Zm9vYmFy"}};
  for (const auto& [bytes, text] : known) {
    EXPECT_EQ(base64_of(bytes), text);
    EXPECT_EQ(from_base64(text), bytes);
  }
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  EXPECT_EQ(from_base64(base64_of(all)), all);
  for (const char* text :
       {"Z", "Zg", "Zg=", "Zh==", "Zm9=", "====", "Z===", "Zm9v\n", "Zm-v", "=Zg=", "Zg==Zg=="})
    EXPECT_EQ(from_base64(text), std::nullopt) << text;
}

TEST(JsonAnswer, LimitsDepth) {
  EXPECT_TRUE(etcd::parse_object(R"({"a":{"b":[1,{"c":2}]}})"));
  std::string deep = "{\"a\":";
  for (int i = 0; i < 100'000; ++i) deep += '[';
  for (int i = 0; i < 100'000; ++i) deep += ']';
  const auto value = etcd::parse_object(deep + "}");
  EXPECT_TRUE(!value || value->dump().size() < 100);
}

TEST(JsonAnswer, DamagedMessagesDoNotCrash) {
  const std::string message =
      R"({"header":{"cluster_id":"15","revision":"12"},"more":true,"kvs":[)"
      R"({"key":"ci9r","mod_revision":"12","value":"Zm9v","lease":"7"},{"key":"ci9s","mod_revision":"11"}],)"
      R"("error":{"grpc_code":5,"message":"x"}})";
  const auto undamaged = etcd::parse_object(message);
  ASSERT_TRUE(undamaged);
  const nlohmann::json* const pairs = etcd::list_member(*undamaged, "kvs");
  ASSERT_NE(pairs, nullptr);
  ASSERT_EQ(pairs->size(), 2U);
  const store::Entry first{.key = "k", .value = "foo", .revision = 12, .lease = 7};
  EXPECT_EQ(etcd::entry_of((*pairs)[0], "r/"), first);
  EXPECT_EQ(etcd::entry_of((*pairs)[1], "r/"), (store::Entry{.key = "l", .value = "", .revision = 11}));
  EXPECT_EQ(etcd::refusal_of(*undamaged)->code, 5);

  std::mt19937 random(1);
  int parsed = 0;
  for (int i = 0; i < 5000; ++i) {
    std::string damaged = message;
    for (int n = static_cast<int>(random() % 3); n >= 0; --n) {
      const size_t at = random() % damaged.size();
      switch (random() % 3) {
        case 0: damaged[at] = "{}[]\",:0-e\xff"[random() % 11]; break;
        case 1: damaged.erase(at, random() % 8); break;
        default: damaged.insert(at, damaged.substr(random() % damaged.size(), random() % 20));
      }
      if (damaged.empty()) damaged = "x";
    }
    const auto object = etcd::parse_object(damaged);
    if (!object) continue;
    ++parsed;
    static_cast<void>(etcd::refusal_of(*object));
    static_cast<void>(etcd::header_revision(*object));
    const nlohmann::json* const list = etcd::list_member(*object, "kvs");
    if (list == nullptr) continue;
    for (const nlohmann::json& pair : *list) {
      const auto entry = etcd::entry_of(pair, "r/");
      if (!entry) continue;
      EXPECT_TRUE(store::check_key(entry->key));
      EXPECT_GT(entry->revision, 0);
    }
  }
  EXPECT_GT(parsed, 500);
}

}  // namespace
}  // namespace sluice::test
