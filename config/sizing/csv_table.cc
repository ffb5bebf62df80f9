#include "config/sizing/csv_table.h"

#include <utility>

namespace sluice::config {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
constexpr std::string_view kSpaces = " \t";

class LineReader {
 public:
  LineReader(std::string_view line, size_t number, const std::string& name)
      : line_(line), number_(number), name_(name) {}

  Result<CsvRow> row() {
    CsvRow row{.line = number_, .fields = {}};
    for (;;) {
      SLUICE_ASSIGN_OR_RETURN(field, next());
      row.fields.push_back(std::move(field));
      if (at_ == line_.size()) return row;
      ++at_;  // the comma
    }
  }

 private:
  void skip_spaces() {
    const size_t next = line_.find_first_not_of(kSpaces, at_);
    at_ = next == std::string_view::npos ? line_.size() : next;
  }

  // Leaves `at_` at the comma after the field, or at the end.
  Result<CsvField> next() {
    skip_spaces();
    CsvField field{.text = {}, .column = at_ + 1};
    if (at_ < line_.size() && line_[at_] == '"') return quoted(std::move(field));
    const size_t end = std::min(line_.find(',', at_), line_.size());
    std::string_view text = line_.substr(at_, end - at_);
    if (const size_t quote = text.find('"'); quote != std::string_view::npos)
      return bad(at_ + quote, "quote inside an unquoted field");
    const size_t last = text.find_last_not_of(kSpaces);
    field.text = text.substr(0, last == std::string_view::npos ? 0 : last + 1);
    at_ = end;
    return field;
  }

  Result<CsvField> quoted(CsvField field) {
    const size_t open = at_++;
    for (;; ++at_) {
      if (at_ >= line_.size()) return bad(open, "missing closing quote");
      if (line_[at_] != '"') {
        field.text += line_[at_];
      } else if (at_ + 1 < line_.size() && line_[at_ + 1] == '"') {
        field.text += line_[at_++];
      } else {
        break;
      }
    }
    ++at_;
    skip_spaces();
    if (at_ < line_.size() && line_[at_] != ',') return bad(at_, "expected a comma after the closing quote");
    return field;
  }

  tl::unexpected<Error> bad(size_t at, const std::string& reason) const {
    return invalid(csv_position(name_, number_, at + 1) + reason);
  }

  std::string_view line_;
  size_t at_ = 0;
  size_t number_;
  const std::string& name_;
};

}  // namespace

std::string csv_position(const std::string& name, size_t line, size_t column) {
  return name + ":" + std::to_string(line) + ":" + std::to_string(column) + ": ";
}

Result<std::vector<CsvRow>> parse_csv(std::string_view text, const std::string& name) {
  if (text.size() > kMaxCsvBytes) {
    return invalid(csv_position(name, 1, 1) + "table is longer than " + std::to_string(kMaxCsvBytes) +
                   " bytes");
  }
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::vector<CsvRow> rows;
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (const size_t nul = line.find('\0'); nul != std::string_view::npos)
      return invalid(csv_position(name, number, nul + 1) + "file contains a NUL byte; expected UTF-8 text");
    const size_t first = line.find_first_not_of(kSpaces);
    if (first == std::string_view::npos || line[first] == '#') continue;
    SLUICE_ASSIGN_OR_RETURN(row, LineReader(line, number, name).row());
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace sluice::config
