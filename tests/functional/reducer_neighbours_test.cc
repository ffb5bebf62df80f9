// A job that begins and refuses sessions as fast as it can: the memory and the log lines that this costs are
// bounded, and other jobs keep theirs.
#include <atomic>

#include "core/log.h"
#include "tests/functional/reducer_fixture.h"

namespace sluice::test {
namespace {

// Global, because a log sink is a plain function.
std::atomic<int> lines_of_refusals = 0, lines_of_own = 0, audit_lines = 0;

class Neighbours : public ReducerTest {
 protected:
  void SetUp() override {
    lines_of_refusals = lines_of_own = audit_lines = 0;
    log::set_sink([](log::Level /*level*/, std::string_view line) noexcept {
      lines_of_refusals += line.find("refused: ") != line.npos ? 1 : 0;
      lines_of_own += line.find("own reason") != line.npos ? 1 : 0;
      audit_lines += line.starts_with("audit: ") ? 1 : 0;
    });
    start();
  }
  ~Neighbours() override { log::set_sink(nullptr); }

  // A session of one rank, which votes no.
  void refuse(const std::string& job, uint32_t number, const std::string& reason) const {
    ScriptedMember::Shape shape{.window_bytes = 8 * kKiB, .slot_bytes = 4 * kKiB, .job = job};
    shape.session = id(number);
    ScriptedMember rank(port(), shape);
    rank.join();
    rank.expect_joined();
    wire::Vote no;
    no.reason = {.code = Errc::kAborted, .text = reason};
    rank.control.send(no, rank.joined.handle);
    EXPECT_EQ(rank.control.expect<wire::Verdict>().reason.code, Errc::kAborted);
  }
  [[nodiscard]] wire::Verdict verdict_on(const SessionId& session, const std::string& job) const {
    ScriptedConnection query(port());
    query.handshake({.purpose = wire::Purpose::kVerdict, .session = session, .job = job});
    query.send(wire::VerdictQuery{});
    return query.expect<wire::Verdict>();
  }
  static SessionId id(uint32_t number) {
    SessionId id{};
    id.bytes[14] = static_cast<uint8_t>(number), id.bytes[15] = static_cast<uint8_t>(number >> 8);
    return id;
  }
};

TEST_F(Neighbours, KeepTheirVerdictsAndTheirLines) {
  auto ranks = start_session(port(), {.session = session_id(1), .ranks = 2, .job = "own"});
  for (uint32_t i = 0; i < 400; ++i) refuse("noisy", i, "no");
  refuse("own", 1000, "own reason");
  for (uint32_t i = 400; i < 800; ++i) refuse("noisy", i, "no");
  const auto verdict = verdict_on(id(1000), "own");
  EXPECT_NE(verdict.reason.text.find("own reason"), std::string::npos) << verdict.reason.text;
  EXPECT_EQ(verdict_on(session_id(1), "own").incarnation, ranks[0].incarnation);
  const auto outcomes = status()["outcomes"];
  EXPECT_EQ(outcomes["kept"], 256 + 2);
  EXPECT_EQ(outcomes["dropped"], 800 - 256);
  EXPECT_EQ(lines_of_own, 1);
  EXPECT_EQ(lines_of_refusals, 60 + 1);
  EXPECT_EQ(audit_lines, 30 + 2);
  expect_sums(ranks, 0);
  for (auto& rank : ranks) rank.leave();
}

// It runs for longer than its verdict is kept beside so many of the same job.
TEST_F(Neighbours, AnOpenSessionKnowsItsVerdictAmongManyOfItsJob) {
  auto ranks = start_session(port(), {.session = session_id(1), .ranks = 2, .job = "own"});
  for (uint32_t i = 0; i < 300; ++i) refuse("own", i, "no");
  const auto verdict = verdict_on(session_id(1), "own");
  EXPECT_EQ(verdict.commit, 1);
  EXPECT_EQ(verdict.incarnation, ranks[0].incarnation);
  EXPECT_EQ(verdict_on(session_id(1), "other").reason.code, Errc::kUnknownSession);
  for (auto& rank : ranks) rank.leave();
}

}  // namespace
}  // namespace sluice::test
