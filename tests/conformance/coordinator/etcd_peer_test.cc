// An etcd server that answers with garbage, too much, or nothing: each is an error within the deadline.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/clock.h"
#include "core/text_encoding.h"
#include "store/coordinator/etcd/etcd_coordinator.h"
#include "tests/conformance/coordinator/scripted_http_server.h"

namespace sluice::test {
namespace {

using store::EtcdCoordinator;
using store::EtcdOptions;
using After = ScriptedHttpServer::After;

constexpr Nanos kTimeout = kSecond;
// More than a call may take, for a machine under load.
constexpr Nanos kLate = 30 * kSecond;

std::unique_ptr<store::Coordinator> coordinator_of(const ScriptedHttpServer& server,
                                                   Nanos timeout = kTimeout) {
  EtcdOptions options;
  options.endpoints = {{.host = "127.0.0.1", .port = server.port()}};
  options.root = "r/";
  options.request_timeout = timeout;
  return std::move(*EtcdCoordinator::make(options));
}

std::vector<Error> errors_of_all_calls(store::Coordinator& coordinator) {
  std::vector<Error> errors;
  const auto note = [&](const auto& result) {
    errors.push_back(result ? Error{Errc::kOk, "no error"} : result.error());
  };
  note(coordinator.get("k"));
  note(coordinator.list("k"));
  note(coordinator.create("k", "v"));
  note(coordinator.compare_and_swap("k", 5, "v"));
  note(coordinator.remove("k", 5));
  note(coordinator.grant(5 * kSecond));
  note(coordinator.keep_alive(7));
  note(coordinator.revoke(7));
  return errors;
}

bool is_error_of_a_peer(const Error& error) {
  return store::is_unavailable(error) || error.code == Errc::kBadField;
}

TEST(EtcdPeer, GarbageIsAnErrorOfEveryCall) {
  const std::string header = R"("header":{"revision":"9"})";
  const std::vector<std::string> answers = {
      "",
      "garbage\r\n\r\n",
      "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{",
      "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\n{}",
      "HTTP/1.1 200 OK\r\nContent-Length: 1099511627776\r\n\r\n{}",
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n{}",
      "HTTP/1.1 200 OK\r\nX: " + std::string(200'000, 'x') + "\r\n\r\n",
      "HTTP/1.1 500 Oops\r\nContent-Length: 6\r\n\r\n<html>",
      "HTTP/1.1 404 Missing\r\nContent-Length: 2\r\n\r\n{}",
      http_ok(""),
      http_ok("[]"),
      http_ok("\xff\xfe"),
      http_ok(R"({"header":)" + std::string(100'000, '[')),
      http_ok("{}"),
      http_ok(R"({"header":{"revision":"-1"}})"),
      http_ok(R"({"header":{"revision":"99999999999999999999"}})"),
      http_ok(R"({"header":[],"kvs":{},"responses":{},"ID":[],"TTL":{}})"),
      http_ok("{" + header + R"(,"kvs":[7],"responses":[7],"ID":"x","TTL":"-9"})") + "\n",
      http_ok("{" + header + R"(,"kvs":[{},{}],"responses":[{},{}],"ID":"0","TTL":"1"})"),
      http_ok(
          "{" + header +
          R"(,"kvs":[{"key":"?","mod_revision":"1"}],"responses":[{"response_range":{"kvs":[{"key":"?"}]}}]})"),
      http_ok("{" + header + R"(,"kvs":[{"key":")" + base64_of("other/k") + R"(","mod_revision":"1"}]})"),
      http_ok("{" + header + R"(,"kvs":[{"key":")" + base64_of("r/k") + R"(","mod_revision":"0"}]})"),
      http_ok("{" + header + R"(,"kvs":[{"key":")" + base64_of("r/x") + R"(","mod_revision":"1"}]})"),
      http_ok("{" + header + R"(,"kvs":[{"key":")" + base64_of("r/k") +
              R"(","mod_revision":"1","value":7}]})"),
      http_ok("{" + header + R"(,"kvs":[],"more":true,"succeeded":7})"),
  };
  for (const std::string& answer : answers) {
    SCOPED_TRACE(answer.substr(0, 200));
    const ScriptedHttpServer server(answer, After::kClose);
    const auto coordinator = coordinator_of(server, 10 * kSecond);
    const Nanos begin = monotonic_now();
    const auto errors = errors_of_all_calls(*coordinator);
    EXPECT_LT(monotonic_now() - begin, kLate);
    for (size_t i = 0; i < errors.size(); ++i) {
      // These calls of these answers are as etcd would answer them.
      const bool has_no_key = answer.find("\"kvs\":[],") != std::string::npos && i == 0;
      const bool has_header = answer.find(header) != std::string::npos && i == 7;
      if (has_no_key || has_header) continue;
      EXPECT_TRUE(is_error_of_a_peer(errors[i])) << i << ": " << errors[i].text;
      EXPECT_NE(errors[i].text.find("etcd at 127.0.0.1:"), std::string::npos) << errors[i].text;
      EXPECT_LT(errors[i].text.size(), 400U);
      EXPECT_EQ(errors[i].text.find_first_of("\n\r"), std::string::npos);
    }
    // A change is not sent again if the server closes the idle connection at that moment.
    EXPECT_GE(server.requests(), 5);
  }
}

// A length is refused before the bytes are read; an answer without a length when it is too long.
TEST(EtcdPeer, TooLargeAnswerIsAnError) {
  const std::string large(store::etcd::HttpConnection::kMaxAnswerBytes + 1, 'x');
  const std::string chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2000000\r\n" + large;
  for (const std::string& answer : {http_ok(large), chunked}) {
    const ScriptedHttpServer server(answer, After::kHold);
    const auto coordinator = coordinator_of(server, kLate);
    const auto answered = coordinator->get("k");
    ASSERT_FALSE(answered);
    EXPECT_EQ(answered.error().code, Errc::kBadField);
    EXPECT_THAT(answered.error().text, testing::EndsWith(": answer is longer than 24MiB"));
  }
}

TEST(EtcdPeer, SilentServerIsATimeout) {
  for (const std::string answer : {"", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"}) {
    const ScriptedHttpServer server(answer, After::kHold);
    const auto coordinator = coordinator_of(server, 30 * kMillisecond);
    const Nanos begin = monotonic_now();
    const auto errors = errors_of_all_calls(*coordinator);
    EXPECT_LT(monotonic_now() - begin, kLate);
    for (const Error& error : errors) {
      EXPECT_EQ(error.code, Errc::kTimeout);
      EXPECT_THAT(error.text, testing::ContainsRegex("etcd at 127.0.0.1:[0-9]+: no answer "));
    }
  }
}

TEST(EtcdPeer, RefusalHasItsReason) {
  const auto refusal = [](const std::string& status, const std::string& text, int code) {
    const std::string body = R"({"error":")" + text + R"(","code":)" + std::to_string(code) + "}";
    return "HTTP/1.1 " + status + "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  };
  {
    const ScriptedHttpServer server(refusal("503 Service Unavailable", "etcdserver: no leader", 14),
                                    After::kHold);
    const auto result = coordinator_of(server)->create("k", "");
    ASSERT_FALSE(result);
    EXPECT_TRUE(store::is_unavailable(result.error()));
    EXPECT_THAT(result.error().text, testing::HasSubstr("request refused: etcdserver: no leader"));
  }
  {
    const ScriptedHttpServer server(refusal("429 Too Many", "etcdserver: mvcc: database space exceeded", 8),
                                    After::kHold);
    const auto result = coordinator_of(server)->create("k", "");
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, Errc::kSystem);
    EXPECT_THAT(result.error().text, testing::HasSubstr("database space exceeded"));
  }
  {
    const ScriptedHttpServer server(refusal("401 Unauthorized", "etcdserver: user name is empty", 16),
                                    After::kHold);
    const auto result = coordinator_of(server)->get("k");
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, Errc::kUnauthenticated);
  }
  {
    const std::string text = "etcdserver: mvcc: required revision has been compacted";
    const ScriptedHttpServer server(refusal("400 Bad Request", text, 11), After::kHold);
    const auto result = coordinator_of(server)->list("k");
    ASSERT_FALSE(result);
    EXPECT_TRUE(store::is_unavailable(result.error()));
    EXPECT_THAT(result.error().text, testing::HasSubstr("was compacted while keys were listed; list again"));
  }
}

TEST(EtcdPeer, NameIsResolvedOrRefused) {
  const ScriptedHttpServer server(http_ok(R"({"header":{"revision":"9"}})"), After::kHold);
  EtcdOptions options;
  options.endpoints = {{.host = "localhost", .port = server.port()}};
  options.request_timeout = 10 * kSecond;
  EXPECT_TRUE((*EtcdCoordinator::make(options))->get("k"));
  options.endpoints = {{.host = "no-such-host.invalid", .port = server.port()}};
  options.request_timeout = kTimeout;
  const Nanos begin = monotonic_now();
  const auto result = (*EtcdCoordinator::make(options))->get("k");
  EXPECT_LT(monotonic_now() - begin, kLate);
  ASSERT_FALSE(result);
  EXPECT_TRUE(store::is_unavailable(result.error()));
  EXPECT_THAT(result.error().text, testing::HasSubstr("etcd at no-such-host.invalid:"));
}

}  // namespace
}  // namespace sluice::test
