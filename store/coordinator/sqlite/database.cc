#include "store/coordinator/sqlite/database.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

namespace sluice::store::sqlite {
namespace {

constexpr int64_t kApplicationId = 0x536c4331;  // "SlC1": `file` and other programs can tell the file's owner
constexpr int64_t kSchemaVersion = 2;
constexpr mode_t kMode = 0600;

// `state` has one row. The expiry of a lease is a time of the process, so the file has only its TTL.
constexpr const char* kSchema = R"(
  CREATE TABLE state (one INTEGER PRIMARY KEY CHECK (one = 1), revision INTEGER NOT NULL);
  CREATE TABLE entries (key TEXT PRIMARY KEY, value BLOB NOT NULL, revision INTEGER NOT NULL,
    lease INTEGER NOT NULL) WITHOUT ROWID;
  CREATE INDEX entries_of_lease ON entries (lease) WHERE lease != 0;
  CREATE TABLE leases (id INTEGER PRIMARY KEY AUTOINCREMENT, ttl INTEGER NOT NULL);
  INSERT INTO state VALUES (1, 0);
)";

// Version 1 also had the last changes of all keys, which nothing reads.
constexpr const char* kUpgradeOfVersion1 = R"(
  DROP TABLE changes;
  ALTER TABLE state DROP COLUMN compacted;
)";

}  // namespace

void Statement::Finalize::operator()(sqlite3_stmt* statement) const noexcept {
  sqlite3_finalize(statement);
}

Statement& Statement::bind(int64_t value) noexcept {
  const int error = sqlite3_bind_int64(statement_.get(), next_++, value);
  if (bind_error_ == SQLITE_OK) bind_error_ = error;
  return *this;
}

Statement& Statement::bind_text(std::string_view value) noexcept {
  const int error =
      sqlite3_bind_text64(statement_.get(), next_++, value.data(), value.size(), SQLITE_STATIC, SQLITE_UTF8);
  if (bind_error_ == SQLITE_OK) bind_error_ = error;
  return *this;
}

Statement& Statement::bind_blob(std::string_view value) noexcept {
  // A null pointer would bind NULL.
  const char* const data = value.empty() ? "" : value.data();
  const int error = sqlite3_bind_blob64(statement_.get(), next_++, data, value.size(), SQLITE_STATIC);
  if (bind_error_ == SQLITE_OK) bind_error_ = error;
  return *this;
}

Result<bool> Statement::step() {
  if (bind_error_ != SQLITE_OK) return database_->error("bind a value for");
  const int outcome = sqlite3_step(statement_.get());
  if (outcome == SQLITE_ROW) return true;
  if (outcome == SQLITE_DONE) return false;
  return database_->error("use");
}

int64_t Statement::integer(int column) const noexcept {
  return sqlite3_column_int64(statement_.get(), column);
}

std::string Statement::bytes(int column) const {
  const void* const data = sqlite3_column_blob(statement_.get(), column);
  const auto size = static_cast<size_t>(sqlite3_column_bytes(statement_.get(), column));
  return data == nullptr ? std::string() : std::string(static_cast<const char*>(data), size);
}

Result<std::unique_ptr<Database>> Database::open(const std::string& path) {
  std::unique_ptr<Database> database(new Database(path));
  // SQLite would create it for everybody to read. Its log gets the same mode.
  if (const int created = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, kMode); created >= 0) {
    ::close(created);
  } else {
    ::chmod(path.c_str(), kMode);  // of an earlier release
  }
  constexpr int kFlags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
  if (sqlite3_open_v2(path.c_str(), &database->handle_, kFlags, nullptr) != SQLITE_OK)
    return database->error("open");
  SLUICE_RETURN_IF_ERROR(database->lock());
  SLUICE_RETURN_IF_ERROR(database->check_content());
  return database;
}

Database::~Database() {
  sqlite3_close(handle_);
}

// In this mode the first transaction locks the file until it is closed, and the log needs no shared memory.
Result<void> Database::lock() {
  for (const char* sql :
       {"PRAGMA locking_mode=EXCLUSIVE", "PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL",
        "PRAGMA trusted_schema=OFF", "BEGIN EXCLUSIVE", "COMMIT"}) {
    if (auto done = run(sql); !done) {
      const int code = sqlite3_errcode(handle_);
      if (code != SQLITE_BUSY && code != SQLITE_LOCKED) return done;
      return fail(Errc::kSystem, path_ + " is in use by another process; a state folder serves one reducer");
    }
  }
  return {};
}

Result<void> Database::check_integrity() {
  auto checked = prepare("PRAGMA quick_check(1)");
  if (!checked) return tl::unexpected(std::move(checked.error()));
  SLUICE_ASSIGN_OR_RETURN(has_row, checked->step());
  if (!has_row || checked->bytes(0) != "ok")
    return fail(Errc::kMismatch, path_ + " is damaged: " + (has_row ? checked->bytes(0) : "no answer"));
  return {};
}

Result<void> Database::check_content() {
  SLUICE_RETURN_IF_ERROR(check_integrity());
  SLUICE_ASSIGN_OR_RETURN(owner, integer_of("PRAGMA application_id"));
  SLUICE_ASSIGN_OR_RETURN(version, integer_of("PRAGMA user_version"));
  SLUICE_ASSIGN_OR_RETURN(tables, integer_of("SELECT count(*) FROM sqlite_schema"));
  if (owner == 0 && version == 0 && tables == 0) return change_schema(kSchema);
  if (owner != kApplicationId) return fail(Errc::kMismatch, path_ + " is a database of another program");
  if (version == 1) return change_schema(kUpgradeOfVersion1);
  if (version != kSchemaVersion)
    return fail(Errc::kMismatch, path_ + " has schema version " + std::to_string(version) +
                                     "; this release reads version " + std::to_string(kSchemaVersion) +
                                     " and older ones");
  return {};
}

Result<void> Database::change_schema(const char* sql) {
  SLUICE_ASSIGN_OR_RETURN(transaction, Transaction::begin(*this));
  SLUICE_RETURN_IF_ERROR(run(sql));
  SLUICE_RETURN_IF_ERROR(run(("PRAGMA application_id=" + std::to_string(kApplicationId)).c_str()));
  SLUICE_RETURN_IF_ERROR(run(("PRAGMA user_version=" + std::to_string(kSchemaVersion)).c_str()));
  return transaction.commit();
}

Result<int64_t> Database::integer_of(const char* sql) const {
  SLUICE_ASSIGN_OR_RETURN(statement, prepare(sql));
  SLUICE_ASSIGN_OR_RETURN(has_row, statement.step());
  return has_row ? statement.integer(0) : 0;
}

Result<Statement> Database::prepare(std::string_view sql) const {
  sqlite3_stmt* statement = nullptr;
  if (sqlite3_prepare_v2(handle_, sql.data(), static_cast<int>(sql.size()), &statement, nullptr) != SQLITE_OK)
    return error("use");
  return Statement(*this, statement);
}

Result<void> Database::run(const char* sql) const {
  if (sqlite3_exec(handle_, sql, nullptr, nullptr, nullptr) != SQLITE_OK) return error("use");
  return {};
}

tl::unexpected<Error> Database::error(std::string_view what) const {
  const int code = handle_ == nullptr ? SQLITE_NOMEM : sqlite3_errcode(handle_);
  const char* const cause = handle_ == nullptr ? "out of memory" : sqlite3_errmsg(handle_);
  const bool damaged = code == SQLITE_CORRUPT || code == SQLITE_NOTADB;
  return fail(damaged ? Errc::kMismatch : Errc::kSystem,
              "cannot " + std::string(what) + " " + path_ + ": " + cause);
}

Result<Transaction> Transaction::begin(const Database& database) {
  SLUICE_RETURN_IF_ERROR(database.run("BEGIN IMMEDIATE"));
  return Transaction(database);
}

Transaction::~Transaction() {
  if (database_ != nullptr) static_cast<void>(database_->run("ROLLBACK"));
}

Result<void> Transaction::commit() {
  SLUICE_RETURN_IF_ERROR(database_->run("COMMIT"));
  database_ = nullptr;
  return {};
}

}  // namespace sluice::store::sqlite
