// Class Database is the SQLite file of a coordinator: opening, statements and transactions with errors as
// Result.
//
// One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "core/result.h"

struct sqlite3;
struct sqlite3_stmt;

namespace sluice::store::sqlite {

class Database;

// One SQL statement. Its texts and blobs must live until the last step().
class Statement {
 public:
  Statement& bind(int64_t value) noexcept;
  Statement& bind_text(std::string_view value) noexcept;
  Statement& bind_blob(std::string_view value) noexcept;
  // True: there is a row to read. Reports the first error of bind too.
  [[nodiscard]] Result<bool> step();
  [[nodiscard]] int64_t integer(int column) const noexcept;
  [[nodiscard]] std::string bytes(int column) const;  // of a text or blob

 private:
  friend class Database;
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const noexcept;
  };
  Statement(const Database& database, sqlite3_stmt* statement) noexcept
      : database_(&database), statement_(statement) {}
  const Database* database_;
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
  int next_ = 1;
  int bind_error_ = 0;
};

class Database {
 public:
  // Opens, creates or upgrades the file and locks it for this process until the destructor. Errors: kSystem:
  // the file cannot be used, or another process has it open; kMismatch: it is damaged, of another program, or
  // of a newer version.
  [[nodiscard]] static Result<std::unique_ptr<Database>> open(const std::string& path);
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;
  ~Database();

  // `sql` is one statement.
  [[nodiscard]] Result<Statement> prepare(std::string_view sql) const;
  // Runs statements that return no rows.
  [[nodiscard]] Result<void> run(const char* sql) const;
  // "cannot WHAT FILE: CAUSE", for the last failure.
  [[nodiscard]] tl::unexpected<Error> error(std::string_view what) const;

 private:
  explicit Database(std::string path) : path_(std::move(path)) {}
  [[nodiscard]] Result<void> lock();
  [[nodiscard]] Result<void> check_integrity();
  [[nodiscard]] Result<void> check_content();
  // Runs `sql`, which leads to the current version, and writes that version. Fails while a statement is in
  // progress.
  [[nodiscard]] Result<void> change_schema(const char* sql);
  [[nodiscard]] Result<int64_t> integer_of(const char* sql) const;

  const std::string path_;
  sqlite3* handle_ = nullptr;
};

// Rolls back in its destructor, unless it was committed.
class Transaction {
 public:
  [[nodiscard]] static Result<Transaction> begin(const Database& database);
  Transaction(Transaction&& other) noexcept : database_(std::exchange(other.database_, nullptr)) {}
  Transaction& operator=(Transaction&&) = delete;
  ~Transaction();
  // Returns after the changes are on the disk.
  [[nodiscard]] Result<void> commit();

 private:
  explicit Transaction(const Database& database) noexcept : database_(&database) {}
  const Database* database_;
};

}  // namespace sluice::store::sqlite
