// What clients of models may take of a reducer's memory, files and steps besides the models themselves.
#include <unistd.h>

#include <bit>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "store/model/model_json.h"
#include "tests/functional/store_fixture.h"

namespace sluice::test {
namespace {

// Bytes that the process, with its reducer, has in memory.
uint64_t resident_bytes() {
  std::ifstream in("/proc/self/statm");
  uint64_t total = 0, resident = 0;
  in >> total >> resident;
  return resident * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

std::vector<std::byte> query_of(uint64_t bytes) {
  return wire::encode_message(
      wire::ModelQuery{.kind = wire::ModelQueryKind::kCreate, .name = "m", .bytes = bytes});
}

cli::StoreServiceOptions small_budgets() {
  cli::StoreServiceOptions options;
  options.budgets = store::BudgetOptions{};
  options.budgets->models = {.all = 4, .each = 3};
  options.budgets->version_files = {.all = 300, .each = 135};
  options.budgets->query_bytes = {.all = 1'000'000, .each = 200'000};
  return options;
}

class StoreBudgets : public StoreRequests {
 protected:
  StoreBudgets() : StoreRequests(small_budgets()) {}
  [[nodiscard]] bool eventually_used(const char* budget, uint64_t used) const {
    return eventually([&](const nlohmann::json& j) { return j["store"]["budgets"][budget]["used"] == used; });
  }
};

TEST_F(StoreBudgets, AnAnnouncedQueryTakesNoMemory) {
  start_with_models();
  std::vector<ScriptedConnection> clients;
  for (int i = 0; i < 40; ++i) clients.push_back(connect());
  const uint64_t before = resident_bytes();
  std::vector<std::byte> begun = query_of(store::kMaxModelText);
  const std::vector<std::byte> piece(wire::kModelDataBytes);
  const auto frame = frame_of_data(0, piece);
  begun.insert(begun.end(), frame.begin(), frame.begin() + 1000);
  for (ScriptedConnection& c : clients) c.send_bytes(begun);
  auto last = connect();
  EXPECT_EQ(first_value(last, create(last), 0), 1.0F) << "the others cost nobody a query";
  EXPECT_LT(resident_bytes(), before + 100 * kMiB) << "40 x 8 MiB are announced";
}

TEST_F(StoreBudgets, AJobsQueriesHaveABudget) {
  start_with_models();
  auto slow = connect("a");
  const std::vector<std::byte> piece(wire::kModelDataBytes, std::byte{' '});
  slow.send_bytes(query_of(2 * piece.size()));
  slow.send_bytes(frame_of_data(0, piece));
  ASSERT_TRUE(eventually_used("query_bytes", piece.size()));
  const auto ask = [&](ScriptedConnection& c) {
    c.send_bytes(query_of(piece.size()));
    c.send_bytes(frame_of_data(0, piece));
    return c.expect<wire::Failed>();
  };
  auto second = connect("a");
  const auto refused = ask(second);
  EXPECT_EQ(refused.code, Errc::kTooMany);
  EXPECT_EQ(
      refused.text,
      R"(job "a" has 130944 of the 200000 bytes of queries that a job may have on this reducer, and needs )"
      "130944 more");
  auto other = connect("b");
  EXPECT_EQ(ask(other).code, Errc::kInvalidArgument) << "another job's spaces are no JSON";
  slow.close();
  ASSERT_TRUE(eventually_used("query_bytes", 0));
  EXPECT_EQ(ask(second).code, Errc::kInvalidArgument);
  EXPECT_EQ(status()["store"]["budgets"]["query_bytes"]["refused"], 1);
}

std::string model_of(const std::string& name, int versions) {
  return R"({"name": ")" + name + R"(", "versions": )" + std::to_string(versions) +
         R"(, "mode": {"kind": "async"}, "rule": {"kind": "add"}, )"
         R"("tensors": [{"name": "w", "dtype": "f32", "shape": [3]}]})";
}

TEST_F(StoreBudgets, AJobsModelsAndTheirFilesHaveBudgets) {
  start_with_models();
  auto a = connect("a");
  const auto expect_refused = [](ScriptedConnection& c, const std::string& specification,
                                 const std::string& text) {
    c.send(wire::ModelQuery{.kind = wire::ModelQueryKind::kCreate, .bytes = specification.size()});
    send_body(c, std::as_bytes(std::span(specification)));
    const auto failed = c.expect<wire::Failed>();
    EXPECT_EQ(failed.code, Errc::kTooMany);
    EXPECT_EQ(failed.text, text);
  };
  make(a, model_of("a1", 64));
  make(a, model_of("a2", 64));
  expect_refused(
      a, model_of("a3", 64),
      R"(job "a" has 130 of the 135 files of versions that a job may have on this reducer, and needs )"
      "65 more");
  make(a, model_of("a3", 1));
  expect_refused(a, model_of("a4", 1),
                 R"(job "a" has 3 of the 3 models that a job may have on this reducer, and needs one more)");
  make(a, model_of("a3", 1));  // it exists
  auto b = connect("b");
  make(b, model_of("b1", 64));
  expect_refused(b, model_of("b2", 1),
                 R"(all jobs have 4 of the 4 models of this reducer, and job "b" needs one more)");
  // Models from before a restart count.
  service_.stop();
  ASSERT_TRUE(a.closed_within(10 * kSecond));
  ASSERT_TRUE(service_.open());
  ASSERT_TRUE(service_.start(test_options(), port()));
  const auto budgets = status()["store"]["budgets"];
  EXPECT_EQ(budgets["models"]["used"], 4);
  EXPECT_EQ(budgets["version_files"]["used"], 65 * 3 + 2);
  auto again = connect("a");
  again.send(wire::ModelQuery{.kind = wire::ModelQueryKind::kDelete, .name = "a1"});
  (void)again.expect<wire::ModelAnswer>();
  make(again, model_of("a4", 1));
}

// A model of 4 MiB with one kept version: each step needs the place of the version before the last one.
class StoreReaders : public StoreRequests {
 protected:
  static constexpr uint64_t kMany = uint64_t{1} << 20;

  explicit StoreReaders(const cli::StoreServiceOptions& options = {}) : StoreRequests(options) {}
  void begin() {
    auto options = test_options();
    options.socket_buffer = 64 * kKiB;
    start_with_models(options);
    owner_.emplace(connect());
    model_ =
        make(*owner_, R"({"name": "m", "versions": 1, "mode": {"kind": "async"}, "rule": {"kind": "add"}, )"
                      R"("tensors": [{"name": "w", "dtype": "f32", "shape": [1048576]}]})");
    owner_->send(wire::Install{.model = model_, .bytes = kMany * sizeof(float)});
    send_many(1.0F);
    owner_->send(wire::StartModel{.model = model_});
    (void)owner_->expect<wire::Done>();
  }
  // A body with this value, and its DONE.
  void send_many(float value) {
    const std::vector<float> values(wire::kModelDataBytes / sizeof(float), value);
    for (uint64_t at = 0, end = kMany * sizeof(float); at < end; at += wire::kModelDataBytes)
      owner_->send_bytes(frame_of_data(
          at, std::as_bytes(std::span(values)).first(std::min<uint64_t>(wire::kModelDataBytes, end - at))));
    (void)owner_->expect<wire::Done>();
  }
  // Makes this version.
  void step(uint64_t version) {
    owner_->send(wire::Push{.model = model_, .worker = 1, .number = version, .bytes = kMany * sizeof(float)});
    send_many(1.0F);
    owner_->send(wire::PushStep{.model = model_,
                                .worker = 1,
                                .number = version,
                                .base = version - 1,
                                .weight_bits = std::bit_cast<uint32_t>(1.0F),
                                .timeout_ms = 20'000});
    EXPECT_EQ(owner_->expect<wire::PushAnswer>(25 * kSecond).version, version);
  }
  // Asks for a version, and reads the answer and nothing more.
  [[nodiscard]] ScriptedConnection begin_pull(uint64_t version, wire::DType dtype, uint64_t features) const {
    auto c = connect("reader", {}, features);
    c.send(wire::Pull{.model = model_, .version = version, .dtype = dtype});
    (void)c.expect<wire::PullAnswer>();
    return c;
  }
  // The end of a body: what follows its last frame.
  static std::optional<ReceivedFrame> after_body(ScriptedConnection& c) {
    auto frame = c.receive();
    while (frame && frame->header.type == wire::FrameType::kModelData) frame = c.receive();
    return frame;
  }
  void expect_told(ScriptedConnection& c) {
    const auto frame = after_body(c);
    ASSERT_TRUE(frame);
    wire::Failed failed;
    ASSERT_TRUE(wire::decode_body(std::span<const std::byte>(frame->payload), failed).ok());
    EXPECT_EQ(failed.code, Errc::kTimeout);
    EXPECT_TRUE(
        failed.text.starts_with(R"(model "m": a step needs the place of version 0, which was read at )"))
        << failed.text;
    EXPECT_TRUE(
        failed.text.ends_with("; read at least 16777216 bytes/s, or create the model with more versions"));
    // It may pull again.
    c.send(wire::Pull{.model = model_, .version = 2});
    (void)c.expect<wire::PullAnswer>();
    for (uint64_t at = 0; at < kMany * sizeof(float); at += wire::kModelDataBytes)
      EXPECT_EQ(c.receive()->header.type, wire::FrameType::kModelData);
  }

  std::optional<ScriptedConnection> owner_;
  uint64_t model_ = 0;
};

TEST_F(StoreReaders, AStepEndsOnesThatDoNotRead) {
  begin();
  auto in_place = begin_pull(0, wire::DType::kF32, wire::kFeatureBodyEnd);
  auto converted = begin_pull(0, wire::DType::kBf16, wire::kFeatureBodyEnd);
  auto earlier_release = begin_pull(0, wire::DType::kF32, 0);
  step(1);  // has a place
  step(2);
  expect_told(in_place);
  expect_told(converted);
  EXPECT_FALSE(after_body(earlier_release)) << "it does not know FAILED here";
  EXPECT_EQ(status()["models"][0]["ended_pulls"], 3);
}

cli::StoreServiceOptions patient() {
  cli::StoreServiceOptions options;
  options.deadlines.reader.grace = 60 * kSecond;
  return options;
}

class EarlyReaders : public StoreReaders {
 protected:
  EarlyReaders() : StoreReaders(patient()) {}
};

TEST_F(EarlyReaders, KeepTheirPlaceWhileTheyAreFastEnough) {
  begin();
  auto reader = begin_pull(0, wire::DType::kF32, wire::kFeatureBodyEnd);
  step(1);
  std::thread stepping([&] { step(2); });
  for (uint64_t at = 0; at < kMany * sizeof(float); at += wire::kModelDataBytes) {
    const auto frame = reader.receive();
    EXPECT_EQ(frame->header.type, wire::FrameType::kModelData) << "at " << at;
  }
  stepping.join();
  EXPECT_EQ(status()["models"][0]["ended_pulls"], 0);
}

}  // namespace
}  // namespace sluice::test
