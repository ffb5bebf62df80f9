#include "cli/bits/bit_record_reader.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "config/file_contents.h"
#include "config/printable_text.h"
#include "core/parse_number.h"

namespace sluice::cli {
namespace {

using engine::BitOperation;
using engine::ResultState;

constexpr std::string_view kTitle = engine::kBitRecordTitle.substr(0, engine::kBitRecordTitle.rfind(' ') + 1);
constexpr size_t kColumns = 7;

// Exactly this number of lower-case hex digits, as the writer formats them.
std::optional<uint64_t> parse_hex(std::string_view text, size_t digits) {
  uint64_t value = 0;
  if (text.size() != digits) return std::nullopt;
  for (const char c : text) {
    const size_t digit = std::string_view("0123456789abcdef").find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    value = value << 4 | digit;
  }
  return value;
}

std::optional<wire::Kind> parse_kind(std::string_view name) {
  using enum wire::Kind;
  for (const wire::Kind kind : {kAllreduce, kReduceScatter, kAllGather, kReduce, kBroadcast}) {
    if (name == wire::to_string(kind)) return kind;
  }
  return std::nullopt;
}

std::optional<std::array<std::string_view, kColumns>> split(std::string_view line) {
  std::array<std::string_view, kColumns> columns;
  for (size_t i = 0; i < kColumns; ++i) {
    const size_t tab = line.find('\t');
    if ((tab == line.npos) != (i + 1 == kColumns)) return std::nullopt;
    columns[i] = line.substr(0, tab);
    line.remove_prefix(tab == line.npos ? line.size() : tab + 1);
  }
  return columns;
}

// The columns without the running hash.
std::optional<BitOperation> parse_operation(const std::array<std::string_view, kColumns>& columns) {
  const auto number = parse_number<uint64_t>(columns[0]);
  const auto kind = parse_kind(columns[1]);
  const auto dtype = wire::parse_dtype(columns[2]);
  const auto op = columns[3] == "-" ? std::optional(wire::Op::kSum) : wire::parse_op(columns[3]);
  const auto count = parse_number<uint64_t>(columns[4]);
  if (!number || !kind || !dtype || !op || !count || (columns[3] == "-") != wire::copies(*kind))
    return std::nullopt;
  BitOperation operation{.number = *number, .count = *count, .kind = *kind, .dtype = *dtype, .op = *op};
  if (columns[5] == "none" || columns[5] == "device") {
    operation.state = columns[5] == "none" ? ResultState::kNone : ResultState::kOnDevice;
    return operation;
  }
  const auto crc = parse_hex(columns[5], 8);
  if (!crc) return std::nullopt;
  operation.crc = static_cast<uint32_t>(*crc);
  return operation;
}

// BitRecordParser collects the lines of one file.
class BitRecordParser {
 public:
  explicit BitRecordParser(const std::string& path) { out_.file = path; }

  // The texts of errors say what is wrong with the line.
  [[nodiscard]] Result<void> add(std::string_view line);
  // `rest` is the text behind the last newline.
  [[nodiscard]] Result<BitRecord> finish(std::string_view rest) &&;

 private:
  [[nodiscard]] Result<void> add_title(std::string_view line);
  [[nodiscard]] Result<void> add_description(std::string_view line);
  [[nodiscard]] Result<void> add_operation(std::string_view line);

  BitRecord out_;
  engine::RunningHash running_;
  bool has_title_ = false, has_columns_ = false;
};

Result<void> BitRecordParser::add(std::string_view line) {
  if (!has_title_) return add_title(line);
  if (!out_.end.empty()) return invalid("a line after the end of the bit record");
  if (line.starts_with("# ")) return add_description(line.substr(2));
  if (has_columns_) return add_operation(line);
  if (line != engine::kBitRecordColumns) return invalid("expected the names of the columns");
  has_columns_ = true;
  if (out_.session.empty() || out_.rank >= out_.ranks) return invalid("no session or rank before this line");
  return {};
}

Result<void> BitRecordParser::add_title(std::string_view line) {
  if (!line.starts_with(kTitle)) return invalid("not a bit record of SLUICE_BITS");
  if (line != engine::kBitRecordTitle) {
    return invalid("the bit record has format " + config::printable(line.substr(kTitle.size()), 20) +
                   "; this program reads format " +
                   std::string(engine::kBitRecordTitle.substr(kTitle.size())));
  }
  has_title_ = true;
  return {};
}

// A later version may add names.
Result<void> BitRecordParser::add_description(std::string_view line) {
  const size_t space = std::min(line.find(' '), line.size());
  const std::string_view name = line.substr(0, space);
  const std::string value = config::printable(line.substr(std::min(space + 1, line.size())), 256);
  const std::pair<std::string_view, std::string*> texts[] = {{"job", &out_.job},
                                                             {"host", &out_.host},
                                                             {"started", &out_.started},
                                                             {"library", &out_.library},
                                                             {"end", &out_.end}};
  for (const auto& [text_name, text] : texts) {
    if (name == text_name) *text = value;
  }
  if (name == "end" && value.empty()) return invalid("the end has no reason");
  if (name == "session") {
    const std::string_view digits = value;
    if (!parse_hex(digits.substr(0, 16), 16) ||
        !parse_hex(digits.substr(std::min<size_t>(16, digits.size())), 16))
      return invalid("the session id has not 32 hex digits");
    out_.session = value;
  }
  for (const auto& [number_name, number] : {std::pair("rank", &out_.rank), std::pair("ranks", &out_.ranks)}) {
    if (name != number_name) continue;
    const auto parsed = parse_number<uint32_t>(value);
    if (!parsed) return invalid(std::string(number_name) + " is no number");
    *number = *parsed;
  }
  return {};
}

Result<void> BitRecordParser::add_operation(std::string_view line) {
  const auto columns = split(line);
  const auto operation = columns ? parse_operation(*columns) : std::nullopt;
  const auto running = columns ? parse_hex(columns->back(), engine::RunningHash::kDigits) : std::nullopt;
  if (!operation || !running) return invalid("not an operation of a bit record");
  if (!out_.operations.empty() && operation->number <= out_.operations.back().operation.number)
    return invalid("the operation's number is not above that of the line before");
  running_.add(line.substr(0, line.rfind('\t')));
  if (running_.value() != *running)
    return invalid("the running hash does not match the lines up to here; the file was changed");
  out_.operations.push_back({.operation = *operation, .running = *running});
  return {};
}

// SessionFile leaves spaces behind the last line when the process is killed.
Result<BitRecord> BitRecordParser::finish(std::string_view rest) && {
  if (!has_columns_) return invalid(out_.file + ": truncated before the first operation");
  out_.is_truncated = rest.find_first_not_of(' ') != rest.npos;
  return std::move(out_);
}

}  // namespace

Result<BitRecord> parse_bit_record(std::string_view text, const std::string& path) {
  if (text.empty()) return invalid(path + ": the file is empty");
  BitRecordParser parser(path);
  for (size_t line = 1;; ++line) {
    const size_t length = text.find('\n');
    if (length == text.npos && line > 1) break;
    if (auto added = parser.add(text.substr(0, length)); !added)
      return invalid(path + ":" + std::to_string(line) + ": " + added.error().text);
    text.remove_prefix(std::min(length, text.size() - 1) + 1);
  }
  return std::move(parser).finish(text);
}

Result<BitRecord> read_bit_record(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(text, config::read_text_file(path, engine::kMaxBitRecordBytes + kMiB,
                                                       config::FileKind::kAny, "the bit record"));
  return parse_bit_record(text, path);
}

}  // namespace sluice::cli
