// The file of SqliteCoordinator: one process, damage, versions and SIGKILL.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "store/coordinator/sqlite/sqlite_coordinator.h"
#include "tests/support/temporary_folder.h"

namespace sluice::test {
namespace {

using store::SqliteCoordinator;
using testing::HasSubstr;

class SqliteFile : public testing::Test {
 protected:
  [[nodiscard]] Result<std::unique_ptr<store::Coordinator>> open() const {
    return SqliteCoordinator::open(path_);
  }
  // Changes the file with SQL.
  void edit(const char* sql) const {
    sqlite3* handle = nullptr;
    ASSERT_EQ(sqlite3_open(path_.c_str(), &handle), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(handle, sql, nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(handle);
    sqlite3_close(handle);
  }
  void expect_refused(Errc code, const std::string& reason) const {
    const auto opened = open();
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().code, code);
    EXPECT_THAT(opened.error().text, HasSubstr(path_));
    EXPECT_THAT(opened.error().text, HasSubstr(reason));
  }

  const TemporaryFolder folder_;
  const std::string path_ = folder_.path() + "/coordinator.sqlite";
};

TEST_F(SqliteFile, IsReadableByItsUserOnly) {
  const auto mode_of = [](const std::string& path) {
    struct stat info {};
    EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
    return info.st_mode & 0777U;
  };
  const mode_t before = ::umask(0022);
  for (const char* const release : {"this", "earlier"}) {
    SCOPED_TRACE(release);
    auto coordinator = open();
    ASSERT_TRUE(coordinator);
    ASSERT_TRUE((*coordinator)->create(release, "0"));
    EXPECT_EQ(mode_of(path_), 0600U);
    EXPECT_EQ(mode_of(path_ + "-wal"), 0600U);
    coordinator->reset();
    EXPECT_EQ(::chmod(path_.c_str(), 0644), 0);
  }
  ::umask(before);
}

TEST_F(SqliteFile, AcknowledgedChangesAreThereAfterSigkillAndOtherProcessesAreRefused) {
  int acknowledged[2];
  ASSERT_EQ(::pipe(acknowledged), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto coordinator = open();
    store::Revision revision = (*coordinator)->create("n", "0")->revision;
    for (int n = 1;; ++n) {
      const auto changed = (*coordinator)->compare_and_swap("n", revision, std::to_string(n));
      if (!changed || !changed->is_done() || ::write(acknowledged[1], &n, sizeof n) != sizeof n) ::_exit(1);
      revision = changed->revision;
    }
  }
  ::close(acknowledged[1]);
  int last = 0;
  while (last < 50 && ::read(acknowledged[0], &last, sizeof last) == sizeof last) {
  }
  expect_refused(Errc::kSystem, "is in use by another process");
  ::kill(child, SIGKILL);
  for (int n = 0; ::read(acknowledged[0], &n, sizeof n) == sizeof n;) last = n;
  ::close(acknowledged[0]);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  ASSERT_GE(last, 50);
  const auto coordinator = open();
  ASSERT_TRUE(coordinator) << coordinator.error().text;
  const int found = std::stoi((*coordinator)->get("n").value()->value);
  EXPECT_GE(found, last);
  EXPECT_LE(found, last + 1);
}

TEST_F(SqliteFile, FileOfAnotherProgramOrVersionIsRefused) {
  std::ofstream(path_) << std::string(8192, 'x');
  expect_refused(Errc::kMismatch, "file is not a database");
  ASSERT_EQ(::unlink(path_.c_str()), 0);
  edit("CREATE TABLE other (x)");
  expect_refused(Errc::kMismatch, "is a database of another program");
  ASSERT_EQ(::unlink(path_.c_str()), 0);
  ASSERT_TRUE(open());
  edit("PRAGMA user_version=3");
  expect_refused(Errc::kMismatch, "has schema version 3; this release reads version 2 and older ones");
}

TEST_F(SqliteFile, DamagedFileIsRefused) {
  {
    const auto coordinator = open();
    ASSERT_TRUE(coordinator);
    for (int i = 0; i < 20; ++i)
      ASSERT_TRUE((*coordinator)->create("k" + std::to_string(i), std::string(3000, 'v')));
  }
  // The root page of each table but the first.
  std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
  for (int page = 2; page < 8; ++page) file.seekp(page * 4096).write("damage!!damage!!", 16);
  file.close();
  const auto opened = open();
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, Errc::kMismatch) << opened.error().text;
  EXPECT_THAT(opened.error().text, HasSubstr(path_));
}

TEST_F(SqliteFile, FileOfVersion1IsUpgraded) {
  edit(R"(
    PRAGMA application_id=1399604017;
    PRAGMA user_version=1;
    CREATE TABLE state (one INTEGER PRIMARY KEY CHECK (one = 1), revision INTEGER NOT NULL,
      compacted INTEGER NOT NULL);
    CREATE TABLE entries (key TEXT PRIMARY KEY, value BLOB NOT NULL, revision INTEGER NOT NULL,
      lease INTEGER NOT NULL) WITHOUT ROWID;
    CREATE INDEX entries_of_lease ON entries (lease) WHERE lease != 0;
    CREATE TABLE changes (revision INTEGER NOT NULL, key TEXT NOT NULL, value BLOB, lease INTEGER NOT NULL,
      PRIMARY KEY (revision, key)) WITHOUT ROWID;
    CREATE TABLE leases (id INTEGER PRIMARY KEY AUTOINCREMENT, ttl INTEGER NOT NULL);
    INSERT INTO state VALUES (1, 7, 1);
    INSERT INTO entries VALUES ('k', 'v', 7, 3);
    INSERT INTO changes VALUES (7, 'k', 'v', 3);
    INSERT INTO leases VALUES (3, 600000000000);
  )");
  for (int i = 0; i < 2; ++i) {
    const auto coordinator = open();
    ASSERT_TRUE(coordinator) << coordinator.error().text;
    const store::Entry expected{.key = "k", .value = "v", .revision = 7, .lease = 3};
    EXPECT_EQ((*coordinator)->get("k").value(), expected);
    EXPECT_TRUE((*coordinator)->keep_alive(3).value());
    const auto added = (*coordinator)->create("new" + std::to_string(i), "");
    ASSERT_TRUE(added) << added.error().text;
    EXPECT_EQ(added->revision, 8 + i);
  }
  edit("CREATE TABLE changes (x)");  // the old one is gone
}

}  // namespace
}  // namespace sluice::test
