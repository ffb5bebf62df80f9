#include "config/sizing/vm_rows.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "config/plain_text.h"
#include "config/sizing/calendar_day.h"

namespace sluice::config {
namespace {

constexpr double kMostGbps = 1e6;
constexpr double kMostUsd = 1e6;
constexpr uint32_t kMostGpus = 1024;
constexpr size_t kMostRows = 4096;  // every row is compared with every other

using Checked = Result<void>;

tl::unexpected<Error> bad(std::string text) {
  return fail(Errc::kInvalidArgument, std::move(text));
}

// Plain decimals: no sign, no "inf", no "0x".
std::optional<double> decimal(std::string_view text) {
  if (text.empty() || text.find_first_not_of("0123456789.eE+-") != std::string_view::npos)
    return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

Checked set_name(std::string& target, const std::string& text) {
  if (!is_vm_name(text))
    return bad(quoted(text) + " is no name: 1 to 64 letters, digits, '.', '_', '+', '-'");
  target = text;
  return {};
}

Checked set_role(VmType& row, const std::string& text) {
  if (text != "worker" && text != "reducer") return bad(quoted(text) + " is neither worker nor reducer");
  row.role = text == "worker" ? VmRole::kWorker : VmRole::kReducer;
  return {};
}

Checked set_gbps(VmType& row, const std::string& text) {
  const auto value = decimal(text);
  if (!value || *value <= 0 || *value > kMostGbps)
    return bad(quoted(text) + " is no bandwidth: more than 0, at most 1e6 Gbit/s");
  row.gbps = *value;
  return {};
}

Checked set_arch(VmType& row, const std::string& text) {
  if (!text.empty() && text != "x86_64" && text != "arm64")
    return bad(quoted(text) + " is neither x86_64 nor arm64");
  row.arch = text;
  return {};
}

Checked set_gpus(VmType& row, const std::string& text) {
  if (text.empty()) return {};
  const auto value = decimal(text);
  if (!value || *value < 1 || *value > kMostGpus || *value != std::floor(*value))
    return bad(quoted(text) + " is no number of GPUs: 1 to " + std::to_string(kMostGpus));
  row.gpus = static_cast<uint32_t>(*value);
  return {};
}

Checked set_price(VmType& row, const std::string& text) {
  if (text.empty()) return {};
  const auto value = decimal(text);
  if (!value || *value < 0 || *value > kMostUsd)
    return bad(quoted(text) + " is no price: 0 to 1e6 USD an hour");
  row.usd_per_hour = *value;
  return {};
}

Checked set_date(std::string& target, const std::string& text) {
  if (!text.empty() && text != "undated" && !parse_day(text))
    return bad(quoted(text) + " is no date: 2026-08-18, or undated");
  target = text;
  return {};
}

Checked set_text(std::string& target, const std::string& text) {
  // What is printed to terminals and pasted into shells holds no control characters.
  const auto odd = [](unsigned char c) { return c < ' ' || c == 0x7f; };
  if (std::any_of(text.begin(), text.end(), odd)) return bad("a control character in the text");
  target = text;
  return {};
}

struct Column {
  std::string_view name;
  bool wanted;
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

// Which column of kColumns each field of the header is.
Result<std::vector<const Column*>> columns_of(const CsvRow& header, const std::string& name) {
  std::vector<const Column*> out;
  for (const CsvField& field : header.fields) {
    const auto* const column =
        std::find_if(kColumns.begin(), kColumns.end(), [&](const Column& c) { return c.name == field.text; });
    const std::string place = csv_place(name, header.line, field.column);
    if (column == kColumns.end()) return bad(place + "unknown column " + quoted(field.text));
    if (std::find(out.begin(), out.end(), column) != out.end())
      return bad(place + "column " + quoted(field.text) + " stands here twice");
    out.push_back(column);
  }
  for (const Column& column : kColumns) {
    if (column.wanted && std::find(out.begin(), out.end(), &column) == out.end())
      return bad(csv_place(name, header.line, 1) + "column \"" + std::string(column.name) + "\" is missing");
  }
  return out;
}

}  // namespace

Result<std::vector<VmType>> vm_rows(const std::vector<CsvRow>& rows, const std::string& name) {
  if (rows.empty()) return bad(csv_place(name, 1, 1) + "no line names the columns");
  const auto columns = columns_of(rows.front(), name);
  if (!columns) return tl::unexpected(columns.error());
  if (rows.size() > kMostRows) {
    return bad(csv_place(name, rows[kMostRows].line, 1) + "more than " + std::to_string(kMostRows) +
               " rows are no table of VM types");
  }
  std::vector<VmType> out;
  std::vector<size_t> lines;
  for (size_t i = 1; i < rows.size(); ++i) {
    const CsvRow& row = rows[i];
    if (row.fields.size() != columns->size()) {
      return bad(csv_place(name, row.line, row.fields.back().column) + std::to_string(row.fields.size()) +
                 " fields, where the columns are " + std::to_string(columns->size()));
    }
    VmType type;
    type.table = name;
    for (size_t f = 0; f < row.fields.size(); ++f) {
      if (auto set = (*columns)[f]->set(type, row.fields[f].text); !set)
        return bad(csv_place(name, row.line, row.fields[f].column) + set.error().text);
    }
    for (size_t before = 0; before < out.size(); ++before) {
      const VmType& other = out[before];
      if (same_entry(other, type))
        return bad(csv_place(name, row.line, 1) + type.type + " stands in line " +
                   std::to_string(lines[before]) + " already");
    }
    out.push_back(std::move(type));
    lines.push_back(row.line);
  }
  return out;
}

}  // namespace sluice::config
