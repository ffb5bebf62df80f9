// HttpServer and metrics_text() with a status source that the test controls.
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <vector>

#include "reducer/admin/http_get.h"
#include "reducer/admin/http_server.h"
#include "reducer/admin/metrics.h"

namespace sluice::reducer::admin {
namespace {

class ServerFixture {
 public:
  explicit ServerFixture(StatusSource source, const HttpOptions& options) {
    auto bound = HttpServer::bind(options, "127.0.0.1");
    EXPECT_TRUE(bound) << (bound ? "" : bound.error().text);
    server_ = std::move(*bound);
    server_->start(std::move(source));
  }
  HttpAnswer get(const std::string& path) const {
    auto reply = http_get("127.0.0.1", server_->port(), path, 20 * kSecond);
    EXPECT_TRUE(reply) << (reply ? "" : reply.error().text);
    return reply ? *reply : HttpAnswer{};
  }
  [[nodiscard]] uint16_t port() const { return server_->port(); }

 private:
  std::unique_ptr<HttpServer> server_;
};

TEST(HttpServer, Returns503WhenTheStatusTimesOut) {
  std::vector<std::function<void(std::string)>> unanswered;
  const ServerFixture server([&unanswered](auto reply) { unanswered.push_back(std::move(reply)); },
                             {.host = "127.0.0.1", .status_timeout = 50 * kMillisecond});
  EXPECT_EQ(server.get("/livez").status, 200u);
  const HttpAnswer reply = server.get("/readyz");
  EXPECT_EQ(reply.status, 503u);
  EXPECT_EQ(reply.body, "the reducer did not report its status in time\n");
  EXPECT_EQ(server.get("/status").status, 503u);  // queries the status again
  EXPECT_GE(unanswered.size(), 2u);
  for (const auto& late_reply : unanswered) late_reply("{}");  // must not answer a later query
}

TEST(HttpServer, SharesOneStatusQueryBetweenClients) {
  std::mutex mutex;
  std::vector<std::function<void(std::string)>> queries;
  std::promise<void> first;
  const ServerFixture server(
      [&](auto reply) {
        const std::lock_guard lock(mutex);
        queries.push_back(std::move(reply));
        if (queries.size() == 1) first.set_value();
      },
      {.host = "127.0.0.1", .status_timeout = 20 * kSecond, .status_max_age = 60 * kSecond});
  std::vector<std::future<HttpAnswer>> replies;
  for (int i = 0; i < 8; ++i)
    replies.push_back(std::async(std::launch::async, [&server] { return server.get("/status"); }));
  first.get_future().wait();
  {
    const std::lock_guard lock(mutex);
    queries.front()(R"({"draining": false})");
  }
  for (auto& reply : replies) EXPECT_EQ(reply.get().body, "{\"draining\": false}\n");
  EXPECT_EQ(server.get("/readyz").body, "ok\n");
  const std::lock_guard lock(mutex);
  EXPECT_EQ(queries.size(), 1u);
}

TEST(HttpServer, EndsWhileClientsWait) {
  std::promise<void> asked;
  auto server =
      std::make_unique<ServerFixture>([&asked](auto) { asked.set_value(); },
                                      HttpOptions{.host = "127.0.0.1", .status_timeout = 60 * kSecond});
  const uint16_t port = server->port();
  auto waits =
      std::async(std::launch::async, [port] { return http_get("127.0.0.1", port, "/status", 20 * kSecond); });
  asked.get_future().wait();
  server.reset();
  const auto reply = waits.get();
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code, Errc::kReset);
}

TEST(Metrics, TolerateMissingAndMalformedStatus) {
  const HostFacts host{.process = {}, .links = {{.device = "eth0", .bytes_per_second = 125'000'000}}};
  const char* const odd = R"({"data": 3, "folded": [], "straggler_waits": {"counts": []},
                              "models": [1, {}], "operation_durations": {"sum": 1, "max": {}}, "rdma": {"devices": [{}]}})";
  for (const char* status : {"{}", odd}) {
    const auto text = metrics_text(nlohmann::json::parse(status), {}, host);
    if (!text) {
      EXPECT_EQ(text.error().code, Errc::kUnsupported);
      continue;
    }
    EXPECT_NE(text->find("sluice_link_speed_bytes_per_second{device=\"eth0\"} 125000000\n"),
              std::string::npos);
    EXPECT_NE(text->find("sluice_ready 1\n"), std::string::npos);
  }
}

TEST(Metrics, ShowModels) {
  const auto text =
      metrics_text(nlohmann::json::parse(
                       R"({"models": [{"name": "a\"} 9\nb", "pushes": {"late": 3}, "unavailable": "etcd"},
                                           {"name": "b", "step_age_ms": 1500, "ended_pulls": 4}],
                                "store": {"budgets": {"models": {"used": 1, "refused": 2}, "late": {"idle": 3}}}})"),
                   {}, {});
  if (!text) GTEST_SKIP() << "needs prometheus-library: " << text.error().text;
  for (const char* line :
       {"sluice_model_pushes_total{model=\"a\\\"} 9\\nb\",outcome=\"late\"} 3\n",
        "sluice_model_pushes_total{model=\"b\",outcome=\"late\"} 0\n",
        "sluice_model_unavailable{model=\"b\"} 0\n", "sluice_model_unavailable{model=\"a\\\"} 9\\nb\"} 1\n",
        "sluice_model_step_age_seconds{model=\"b\"} 1.5\n", "sluice_model_ended_pulls_total{model=\"b\"} 4\n",
        "sluice_models_refused_total{budget=\"models\"} 2\n",
        "sluice_models_late_total{state=\"idle\"} 3\n"}) {
    EXPECT_NE(text->find(line), std::string::npos) << line << *text;
  }
}

TEST(Metrics, HistogramBucketsAreCumulative) {
  const auto text = metrics_text(
      nlohmann::json::parse(
          R"({"data": {"straggler_us": 2500000}, "straggler_waits": {"first_bound_us": 16, "counts": [5, 0, 2, 1]},
              "operation_durations": {"sum": {"first_bound_us": 16, "counts": [1, 2], "sum_us": 500000}}})"),
      {}, {});
  if (!text) GTEST_SKIP() << "needs prometheus-library: " << text.error().text;
  for (const char* line :
       {"_bucket{le=\"1.6e-05\"} 5\n", "_bucket{le=\"3.2e-05\"} 5\n", "_bucket{le=\"6.4e-05\"} 7\n",
        "_bucket{le=\"+Inf\"} 8\n", "_count 8\n", "_sum 2.5\n"}) {
    EXPECT_NE(text->find(std::string("sluice_straggler_wait_seconds") + line), std::string::npos)
        << line << *text;
  }
  for (const char* line : {"_bucket{op=\"sum\",le=\"1.6e-05\"} 1\n", "_bucket{op=\"sum\",le=\"+Inf\"} 3\n",
                           "_count{op=\"sum\"} 3\n", "_sum{op=\"sum\"} 0.5\n"}) {
    EXPECT_NE(text->find(std::string("sluice_operation_duration_seconds") + line), std::string::npos)
        << line << *text;
  }
}

}  // namespace
}  // namespace sluice::reducer::admin
