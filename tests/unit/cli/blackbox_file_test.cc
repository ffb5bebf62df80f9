#include "cli/blackbox/blackbox_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "blackbox/dump_file.h"
#include "blackbox/event_kinds.h"
#include "blackbox/event_source.h"

namespace sluice::cli::test {
namespace {

using blackbox::Event;
using blackbox::EventSource;
using blackbox::Role;

const std::string kHeader =
    R"({"sluice_blackbox":1,"program":"p","host":"h","pid":3,"boot":"b","monotonic":100,"wall":200,"why":"w"})"
    "\n";
const std::string kEvent = R"({"at":5,"event":"signal","number":15})"
                           "\n";
const std::string kEnd = R"({"end_of_events":1})"
                         "\n";

void expect_error(const std::string& text, const std::string& error) {
  const auto parsed = parse_blackbox(text, "x");
  ASSERT_FALSE(parsed) << text;
  EXPECT_EQ(parsed.error().text, "x" + error);
}

// Every kind of event with every field, written by the one side and read by the other.
TEST(BlackboxFile, ReadsWhatWasWritten) {
  SessionId session;
  session.bytes.fill(0x5c);
  const EventSource rank = EventSource::of_rank(session, 3);
  const EventSource reducer = EventSource::of_reducer(0xfedc'ba98'7654'3210, blackbox::session_key(session));
  blackbox::process_rings().events.clear();
  for (const blackbox::EventKindInfo& info : blackbox::event_kinds()) {
    rank.record(info.kind, {.peer = 11, .a = 12, .b = 13, .code = Errc::kReset}, "a \"text\"");
    reducer.record(info.kind, {.peer = 11, .a = 12, .b = 13, .code = Errc::kReset}, "a \"text\"");
  }
  const std::string path =
      std::filesystem::temp_directory_path() / ("sluice-blackbox-" + std::to_string(::getpid()));
  ASSERT_EQ(blackbox::write_dump(path.c_str(), {.program = "test", .why = "why"}, blackbox::process_rings()),
            nullptr);
  const auto read = read_blackbox(path);
  std::filesystem::remove(path);
  ASSERT_TRUE(read) << read.error().text;
  EXPECT_EQ(read->program, "test");
  EXPECT_EQ(read->why, "why");
  EXPECT_EQ(read->pid, static_cast<uint64_t>(::getpid()));
  EXPECT_FALSE(read->boot.empty());
  EXPECT_FALSE(read->is_truncated);
  ASSERT_EQ(read->events.size(), 2 * blackbox::event_kinds().size());
  for (size_t i = 0; i < read->events.size(); ++i) {
    const blackbox::EventKindInfo& info = blackbox::event_kinds()[i / 2];
    const RecordedEvent& r = read->events[i];
    EXPECT_EQ(r.event.kind, info.kind);
    EXPECT_EQ(r.event.role, i % 2 == 0 ? Role::kRank : Role::kReducer);
    EXPECT_EQ(r.event.source, i % 2 == 0 ? 3u : 0xfedc'ba98'7654'3210);
    EXPECT_EQ(r.event.session, 0x5c5c'5c5c'5c5c'5c5c);
    EXPECT_EQ(r.event.peer, info.peer == blackbox::PeerKind::kNone ? blackbox::kNoPeer : 11u) << info.name;
    EXPECT_EQ(r.event.a, info.a.empty() ? 0u : 12u);
    EXPECT_EQ(r.event.b, info.b.empty() ? 0u : 13u);
    EXPECT_EQ(r.event.code, Errc::kReset);
    EXPECT_EQ(r.text, "a \"text\"");
  }
}

TEST(BlackboxFile, ATruncatedFileIsReadUpToThere) {
  for (const std::string& text : {kHeader, kHeader + kEvent, kHeader + kEvent + R"({"at":6,"eve)",
                                  kHeader.substr(0, kHeader.size() - 1)}) {
    const auto parsed = parse_blackbox(text, "x");
    ASSERT_TRUE(parsed) << text;
    EXPECT_TRUE(parsed->is_truncated);
  }
  const auto whole = parse_blackbox(kHeader + kEvent + kEnd, "x");
  ASSERT_TRUE(whole);
  EXPECT_FALSE(whole->is_truncated);
  EXPECT_EQ(whole->events.size(), 1u);
}

TEST(BlackboxFile, GarbageIsAnErrorWithItsLine) {
  expect_error("", ": the file is empty");
  expect_error("hello\n", ":1: not a black box of Sluice");
  expect_error("{}\n", ":1: not a black box of Sluice");
  expect_error("[1]\n", ":1: not a black box of Sluice");
  expect_error(kHeader.substr(0, 40), ":1: not a black box of Sluice");
  expect_error(R"({"sluice_blackbox":9})", ": the black box has format 9; this program reads format 1");
  expect_error(R"({"sluice_blackbox":1,"wall":1})", ":1: the header has no times");
  expect_error(kHeader + "hello\n" + kEnd, ":2: not an event of a black box");
  // Which would take fifty times its own memory, and the stack.
  const std::string nested = "{\"a\":" + std::string(200'000, '[') + std::string(200'000, ']') + "}\n";
  expect_error(kHeader + nested + kEnd, ":2: not an event of a black box");
  expect_error(kHeader + kEvent + "{\"at\":-1,\"event\":\"signal\"}\n", ":3: not an event of a black box");
  expect_error(kHeader + kEvent + "{\"at\":\"x\",\"event\":\"signal\"}\n", ":3: not an event of a black box");
  expect_error(kHeader + kEvent + "{\"at\":99999999999999999999,\"event\":\"signal\"}\n",
               ":3: not an event of a black box");
  expect_error(kHeader + kEvent + kEnd + kEvent, ":4: text behind the end of the black box");
}

TEST(BlackboxFile, ValuesOfTheWrongTypeCountAsMissing) {
  const auto parsed = parse_blackbox(
      kHeader +
          R"({"at":5,"event":"connection_lost","rank":"x","session":7,"peer_reducer":[],"connection":-1,"code":{},"text":5})"
          "\n"
          R"({"at":5,"event":"an event of a newer version"})"
          "\n" +
          kEnd,
      "x");
  ASSERT_TRUE(parsed) << parsed.error().text;
  ASSERT_EQ(parsed->events.size(), 1u);
  const Event& e = parsed->events[0].event;
  EXPECT_EQ(e.role, Role::kProcess);
  EXPECT_EQ(e.peer, blackbox::kNoPeer);
  EXPECT_EQ(e.code, Errc::kOk);
  EXPECT_EQ(parsed->unknown, 1u);
}

}  // namespace
}  // namespace sluice::cli::test
