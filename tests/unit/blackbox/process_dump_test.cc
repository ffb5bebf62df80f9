#include "blackbox/process_dump.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "blackbox/dump_file.h"
#include "blackbox/event_source.h"
#include "config/file_pattern.h"
#include "core/assert.h"
#include "core/log.h"

namespace sluice::blackbox::test {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

int warnings = 0;

void count_warnings(log::Level level, std::string_view /*line*/) noexcept {
  if (level == log::Level::kWarn) ++warnings;
}

class ProcessDump : public testing::Test {
 protected:
  ProcessDump() {
    std::string folder = (fs::temp_directory_path() / "sluice-blackbox-XXXXXX").string();
    EXPECT_NE(::mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    process_rings().events.clear();
    process_rings().frequent.clear();
    warnings = 0;
    log::set_sink(&count_warnings);
  }
  ~ProcessDump() override {
    log::set_sink(nullptr);
    set_dump_path("");
    fs::remove_all(folder_);
  }

  static std::vector<Json> lines_of(const fs::path& path) {
    std::vector<Json> lines;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) lines.push_back(Json::parse(line));
    return lines;
  }
  [[nodiscard]] std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(folder_)) found.push_back(entry.path());
    return found;
  }
  [[nodiscard]] std::string own_file() const {
    return folder_ / ("blackbox-" + config::host_name() + "-" + std::to_string(::getpid()) + ".jsonl");
  }

  fs::path folder_;
};

TEST_F(ProcessDump, NamesAFilePerProcess) {
  EXPECT_EQ(dump_path("/x/box.jsonl", "node7", 42), "/x/box-node7-42.jsonl");
  EXPECT_EQ(dump_path("/x.d/box", "node7", 42), "/x.d/box-node7-42");
  EXPECT_EQ(dump_path("/x/%h.json", "node7", 42), "/x/node7-node7-42.json");
  EXPECT_EQ(dump_path("/x/%p-%h.json", "node7", 42), "/x/42-node7.json");
  EXPECT_EQ(dump_path("/x/%p-%h.json", "node7", 42, "-nccl"), "/x/42-node7-nccl.json");
  EXPECT_EQ(dump_path("/x/", "node7", 42, "-nccl"), "/x/blackbox-node7-42-nccl.jsonl");
  EXPECT_EQ(dump_path("/x/", "node7", 42), "/x/blackbox-node7-42.jsonl");
  EXPECT_EQ(dump_path(folder_.string(), "node7", 42), folder_.string() + "/blackbox-node7-42.jsonl");
}

TEST_F(ProcessDump, WritesAHeaderTheEventsInTheOrderOfTimeAndAnEnd) {
  SessionId session;
  session.bytes.fill(0xab);
  const EventSource rank = EventSource::of_rank(session, 2);
  const EventSource reducer = EventSource::of_reducer(0x1234, session_key(session));
  rank.record(EventKind::kConnectionLost,
              {.peer = 0x1234, .a = lane_number(1), .code = Errc::kReset, .at = 300}, "a \"text\"\n\xff");
  rank.record_frequent(EventKind::kOperationBegan, {.peer = 1, .a = 17, .b = 4096, .at = 100});
  reducer.record(EventKind::kConnectionLost, {.peer = 2, .code = Errc::kClosed, .at = 400});
  rank.record_frequent(EventKind::kOperationEnded, {.peer = 1, .a = 17, .b = 4096, .at = 350});
  EventSource().record(EventKind::kSignal, {.a = 15, .at = 500});
  name_process("a test");
  set_dump_path(folder_.string());
  const auto path = write_process_dump("test");
  ASSERT_TRUE(path) << path.error().text;
  EXPECT_EQ(*path, own_file());
  const std::vector<Json> lines = lines_of(*path);
  ASSERT_EQ(lines.size(), 7u);
  const Json& header = lines[0];
  EXPECT_EQ(header["sluice_blackbox"], kDumpVersion);
  EXPECT_EQ(header["pid"], ::getpid());
  EXPECT_EQ(header["host"], config::host_name());
  EXPECT_EQ(header["why"], "test");
  EXPECT_EQ(header["sessions"], Json::array({"abababababababab"}));
  const Json id = "0000000000001234";
  EXPECT_EQ(lines[1], (Json{{"at", 100},
                            {"event", "operation_began"},
                            {"rank", 2},
                            {"session", "abababababababab"},
                            {"collective", 1},
                            {"operation", 17},
                            {"bytes", 4096}}));
  EXPECT_EQ(lines[2], (Json{{"at", 300},
                            {"event", "connection_lost"},
                            {"rank", 2},
                            {"session", "abababababababab"},
                            {"peer_reducer", id},
                            {"connection", 2},
                            {"code", "reset"},
                            {"text", "a \"text\"\n\u00ff"}}));
  EXPECT_EQ(lines[3]["event"], "operation_ended");
  EXPECT_EQ(lines[4]["reducer"], id);
  EXPECT_EQ(lines[4]["peer_rank"], 2);
  EXPECT_EQ(lines[5], (Json{{"at", 500}, {"event", "signal"}, {"number", 15}}));
  EXPECT_EQ(lines[6], (Json{{"end_of_events", 5}}));
}

TEST_F(ProcessDump, SaysHowManyEventsWereReplaced) {
  for (int i = 0; i < 3000; ++i) EventSource().record(EventKind::kStalled, {.a = 1}, std::string(200, '"'));
  set_dump_path(folder_.string());
  ASSERT_TRUE(write_process_dump("test"));
  const std::vector<Json> lines = lines_of(own_file());
  EXPECT_EQ(lines[0]["events_replaced"], 3000 - 2048);
  EXPECT_EQ(lines.size(), 2048u + 2);
}

TEST_F(ProcessDump, ReplacesTheFileAndLeavesNoOther) {
  set_dump_path(folder_.string());
  EventSource().record(EventKind::kSignal, {.a = 1});
  ASSERT_TRUE(write_process_dump("one"));
  // What a process leaves that was killed while it wrote.
  std::ofstream(own_file() + "." + std::to_string(::getpid()) + ".tmp") << "part";
  ASSERT_TRUE(write_process_dump("two"));
  EXPECT_EQ(files().size(), 1u);
  EXPECT_EQ(lines_of(own_file())[0]["why"], "two");
}

TEST_F(ProcessDump, ALibraryTakesThePathFromTheEnvironment) {
  ::unsetenv("SLUICE_BLACKBOX");
  begin_in_library("test");
  EXPECT_FALSE(has_dump_path());
  dump_after_failure("test");
  ::setenv("SLUICE_BLACKBOX", folder_.c_str(), 1);
  begin_in_library("test");
  ::unsetenv("SLUICE_BLACKBOX");
  EXPECT_TRUE(has_dump_path());
  dump_after_failure("test");
  EXPECT_TRUE(fs::exists(own_file()));
  EXPECT_EQ(warnings, 0);
}

TEST_F(ProcessDump, AFailureIsOneWarningUntilAWriteSucceeds) {
  set_dump_path((folder_ / "none" / "box-%p").string());
  for (int i = 0; i < 3; ++i) dump_after_failure("test");
  EXPECT_EQ(warnings, 1);
  fs::create_directory(folder_ / "none");
  dump_after_failure("test");
  fs::remove_all(folder_ / "none");
  for (int i = 0; i < 3; ++i) dump_after_failure("test");
  EXPECT_EQ(warnings, 2);
  // An operator who asks gets an answer each time.
  for (int i = 0; i < 3; ++i) dump_on_request("test");
  EXPECT_EQ(warnings, 5);
}

TEST_F(ProcessDump, DevNullMeansNoFile) {
  set_dump_path("/dev/null");
  EXPECT_FALSE(has_dump_path());
  ::setenv("SLUICE_BLACKBOX", "/dev/null", 1);
  begin_in_library("test");
  ::unsetenv("SLUICE_BLACKBOX");
  EXPECT_FALSE(has_dump_path());
  dump_after_failure("test");
  EXPECT_EQ(warnings, 0);
}

TEST_F(ProcessDump, LeavesDevicesLinksAndAnOldFileAlone) {
  const std::string link = folder_ / "link";
  fs::create_symlink("/dev/null", link);
  EXPECT_STREQ(write_dump(link.c_str(), {"p", "w"}, process_rings()), "not a regular file");
  EXPECT_STREQ(write_dump(folder_.c_str(), {"p", "w"}, process_rings()), "not a regular file");
  EXPECT_TRUE(fs::is_symlink(link));
  for (int i = 0; i < 2000; ++i) EventSource().record(EventKind::kStalled);
  const std::string old = folder_ / "old";
  ASSERT_EQ(write_dump(old.c_str(), {"p", "old"}, process_rings()), nullptr);
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{.rlim_cur = 20'000, .rlim_max = before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &limit);
  const char* const error = write_dump(old.c_str(), {"p", "new"}, process_rings());
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(std::string(error), "File too large");
  EXPECT_EQ(lines_of(old)[0]["why"], "old");
  EXPECT_EQ(files().size(), 2u);
}

TEST_F(ProcessDump, WithoutAPathARequestWritesToTheFolderForTemporaryFiles) {
  const char* const folder = std::getenv("TMPDIR");
  const std::string before = folder == nullptr ? "" : folder;
  ::setenv("TMPDIR", folder_.c_str(), 1);
  dump_on_request("SIGUSR2");
  folder == nullptr ? ::unsetenv("TMPDIR") : ::setenv("TMPDIR", before.c_str(), 1);
  ASSERT_EQ(files().size(), 1u);
  EXPECT_EQ(lines_of(files()[0])[0]["why"], "SIGUSR2");
}

TEST_F(ProcessDump, AChildOfForkHasNoEventsOfItsParent) {
  begin_in_library("test");
  EventSource().record(EventKind::kSignal, {.a = 1}, "of the parent");
  set_dump_path(folder_.string());
  const pid_t child = ::fork();
  if (child == 0) {
    begin_in_library("test");
    EventSource().record(EventKind::kSignal, {.a = 2}, "of the child");
    ::_exit(write_process_dump("test") ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  ASSERT_EQ(files().size(), 1u);
  const std::vector<Json> lines = lines_of(files()[0]);
  EXPECT_EQ(lines[0]["pid"], child);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[1]["event"], "started");
  EXPECT_EQ(lines[2]["text"], "of the child");
}

TEST_F(ProcessDump, AViolatedAssertionWritesTheFile) {
  set_dump_path(folder_.string());
  const pid_t child = ::fork();
  if (child == 0) {
    set_dump_path(folder_.string());  // the path has the process in it
    EventSource().record(EventKind::kSignal, {.a = 2});
    const rlimit no_core{};
    ::setrlimit(RLIMIT_CORE, &no_core);
    std::signal(SIGABRT, SIG_DFL);
    ::close(STDERR_FILENO);
    SLUICE_ASSERT(folder_.empty());
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  ASSERT_EQ(files().size(), 1u);
  EXPECT_EQ(lines_of(files()[0])[0]["why"], "assertion failed");
}

}  // namespace
}  // namespace sluice::blackbox::test
