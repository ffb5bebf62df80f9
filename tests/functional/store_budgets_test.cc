// What clients of models may take of a reducer's memory, files and steps besides the models themselves.
#include <unistd.h>

#include <fstream>
#include <string>
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

}  // namespace
}  // namespace sluice::test
