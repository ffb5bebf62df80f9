#include "config/sizing/vm_rows.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "config/printable_text.h"
#include "config/sizing/calendar_day.h"

namespace sluice::config {
namespace {

constexpr double kMaxGbps = 1e6;
constexpr double kMaxUsd = 1e6;
constexpr uint32_t kMaxGpus = 1024;
constexpr size_t kMaxRows = 4096;  // the duplicate check compares every row with every other

using Checked = Result<void>;

tl::unexpected<Error> bad(std::string text) {
  return fail(Errc::kInvalidArgument, std::move(text));
}

// Accepts decimal numbers: no "inf", no "nan", no "0x".
std::optional<double> parse_decimal(std::string_view text) {
  if (text.empty() || text.find_first_not_of("0123456789.eE+-") != std::string_view::npos)
    return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

Checked set_name(std::string& target, const std::string& text) {
  if (!is_vm_name(text))
    return bad(quoted(text) +
               " is not a valid name; expected 1 to 64 letters, digits, \".\", \"_\", \"+\" or \"-\"");
  target = text;
  return {};
}

Checked set_role(VmType& row, const std::string& text) {
  if (text != "worker" && text != "reducer") return bad("expected worker or reducer, found " + quoted(text));
  row.role = text == "worker" ? VmRole::kWorker : VmRole::kReducer;
  return {};
}

Checked set_gbps(VmType& row, const std::string& text) {
  const auto value = parse_decimal(text);
  if (!value || *value <= 0 || *value > kMaxGbps)
    return bad(quoted(text) + " is not a bandwidth; expected more than 0 and at most 1e6 Gbit/s");
  row.gbps = *value;
  return {};
}

Checked set_arch(VmType& row, const std::string& text) {
  if (!text.empty() && text != "x86_64" && text != "arm64")
    return bad("expected x86_64 or arm64, found " + quoted(text));
  row.arch = text;
  return {};
}

Checked set_gpus(VmType& row, const std::string& text) {
  if (text.empty()) return {};
  const auto value = parse_decimal(text);
  if (!value || *value < 1 || *value > kMaxGpus || *value != std::floor(*value))
    return bad(quoted(text) + " is not a number of GPUs; expected 1 to " + std::to_string(kMaxGpus));
  row.gpus = static_cast<uint32_t>(*value);
  return {};
}

Checked set_price(VmType& row, const std::string& text) {
  if (text.empty()) return {};
  const auto value = parse_decimal(text);
  if (!value || *value < 0 || *value > kMaxUsd)
    return bad(quoted(text) + " is not a price; expected 0 to 1e6 USD per hour");
  row.usd_per_hour = *value;
  return {};
}

Checked set_date(std::string& target, const std::string& text) {
  if (!text.empty() && text != "undated" && !parse_day(text))
    return bad(quoted(text) + " is not a date; expected YYYY-MM-DD or undated");
  target = text;
  return {};
}

Checked set_text(std::string& target, const std::string& text) {
  // The text is printed to terminals and pasted into shells.
  const auto is_control = [](unsigned char c) { return c < ' ' || c == 0x7f; };
  if (std::any_of(text.begin(), text.end(), is_control)) return bad("text contains a control character");
  target = text;
  return {};
}

struct Column {
  std::string_view name;
  bool is_required;
  Checked (*set)(VmType& row, const std::string& text);
};

constexpr std::array<Column, 14> kColumns{{
    {"provider", true, [](VmType& r, const std::string& t) { return set_name(r.provider, t); }},
    {"type", true, [](VmType& r, const std::string& t) { return set_name(r.type, t); }},
    {"role", true, set_role},
    {"gbps", true, set_gbps},
    {"kind", false, [](VmType& r, const std::string& t) { return set_text(r.kind, t); }},
    {"arch", false, set_arch},
    {"gpus", false, set_gpus},
    {"usd_per_hour", false, set_price},
    {"price_region", false, [](VmType& r, const std::string& t) { return set_text(r.price_region, t); }},
    {"bandwidth_source", false,
     [](VmType& r, const std::string& t) { return set_text(r.bandwidth_source, t); }},
    {"bandwidth_date", false, [](VmType& r, const std::string& t) { return set_date(r.bandwidth_date, t); }},
    {"price_source", false, [](VmType& r, const std::string& t) { return set_text(r.price_source, t); }},
    {"price_date", false, [](VmType& r, const std::string& t) { return set_date(r.price_date, t); }},
    {"note", false, [](VmType& r, const std::string& t) { return set_text(r.note, t); }},
}};

// Returns the element of kColumns for each field of the header.
Result<std::vector<const Column*>> columns_of(const CsvRow& header, const std::string& name) {
  std::vector<const Column*> out;
  for (const CsvField& field : header.fields) {
    const auto* const column =
        std::find_if(kColumns.begin(), kColumns.end(), [&](const Column& c) { return c.name == field.text; });
    const std::string position = csv_position(name, header.line, field.column);
    if (column == kColumns.end()) return bad(position + "unknown column " + quoted(field.text));
    if (std::find(out.begin(), out.end(), column) != out.end())
      return bad(position + "duplicate column " + quoted(field.text));
    out.push_back(column);
  }
  for (const Column& column : kColumns) {
    if (column.is_required && std::find(out.begin(), out.end(), &column) == out.end())
      return bad(csv_position(name, header.line, 1) + "missing column " + quoted(column.name));
  }
  return out;
}

}  // namespace

Result<std::vector<VmType>> vm_rows(const std::vector<CsvRow>& rows, const std::string& name) {
  if (rows.empty()) return bad(csv_position(name, 1, 1) + "expected a header line, found an empty table");
  const auto columns = columns_of(rows.front(), name);
  if (!columns) return tl::unexpected(columns.error());
  if (rows.size() > kMaxRows) {
    return bad(csv_position(name, rows[kMaxRows].line, 1) + "table has more than " +
               std::to_string(kMaxRows) + " rows");
  }
  std::vector<VmType> out;
  std::vector<size_t> lines;
  for (size_t i = 1; i < rows.size(); ++i) {
    const CsvRow& row = rows[i];
    if (row.fields.size() != columns->size()) {
      return bad(csv_position(name, row.line, row.fields.back().column) + "expected " +
                 std::to_string(columns->size()) + " fields, found " + std::to_string(row.fields.size()));
    }
    VmType type;
    type.table = name;
    for (size_t f = 0; f < row.fields.size(); ++f) {
      if (auto set = (*columns)[f]->set(type, row.fields[f].text); !set)
        return bad(csv_position(name, row.line, row.fields[f].column) + set.error().text);
    }
    for (size_t j = 0; j < out.size(); ++j) {
      if (same_entry(out[j], type))
        return bad(csv_position(name, row.line, 1) + type.type + " is already defined in line " +
                   std::to_string(lines[j]));
    }
    out.push_back(std::move(type));
    lines.push_back(row.line);
  }
  return out;
}

}  // namespace sluice::config
