#include "config/sizing/vm_catalog.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "config/file_contents.h"
#include "config/nearest_name.h"
#include "config/printable_text.h"
#include "config/sizing/calendar_day.h"
#include "config/sizing/csv_table.h"
#include "core/assert.h"
#include "core/parse_number.h"

namespace sluice::config {

// Generated from config/data/vm-bandwidth.csv (CMakeLists.txt).
extern const std::string_view kVmTable;

namespace {

constexpr double kMaxGbps = 1e6;
constexpr double kMaxUsd = 1e6;
constexpr uint32_t kMaxGpus = 1024;
constexpr size_t kMaxRows = 4096;  // the duplicate check compares every row with every other

using Checked = Result<void>;

// Accepts decimal numbers: no "inf", no "nan", no "0x".
std::optional<double> parse_decimal(std::string_view text) {
  if (text.find_first_not_of("0123456789.eE+-") != std::string_view::npos) return std::nullopt;
  const auto value = parse_number<double>(text);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

Checked set_name(std::string& target, const std::string& text) {
  if (!is_vm_name(text))
    return invalid(in_quotes(text) +
                   " is not a valid name; expected 1 to 64 letters, digits, \".\", \"_\", \"+\" or \"-\"");
  target = text;
  return {};
}

Checked set_role(VmType& row, const std::string& text) {
  if (text != "worker" && text != "reducer")
    return invalid("expected worker or reducer, found " + in_quotes(text));
  row.role = text == "worker" ? VmRole::kWorker : VmRole::kReducer;
  return {};
}

Checked set_gbps(VmType& row, const std::string& text) {
  const auto value = parse_decimal(text);
  if (!value || *value <= 0 || *value > kMaxGbps)
    return invalid(in_quotes(text) + " is not a bandwidth; expected more than 0 and at most 1e6 Gbit/s");
  row.gbps = *value;
  return {};
}

Checked set_arch(VmType& row, const std::string& text) {
  if (!text.empty() && text != "x86_64" && text != "arm64")
    return invalid("expected x86_64 or arm64, found " + in_quotes(text));
  row.arch = text;
  return {};
}

Checked set_gpus(VmType& row, const std::string& text) {
  if (text.empty()) return {};
  const auto value = parse_decimal(text);
  if (!value || *value < 1 || *value > kMaxGpus || *value != std::floor(*value))
    return invalid(in_quotes(text) + " is not a number of GPUs; expected 1 to " + std::to_string(kMaxGpus));
  row.gpus = static_cast<uint32_t>(*value);
  return {};
}

Checked set_price(VmType& row, const std::string& text) {
  if (text.empty()) return {};
  const auto value = parse_decimal(text);
  if (!value || *value < 0 || *value > kMaxUsd)
    return invalid(in_quotes(text) + " is not a price; expected 0 to 1e6 USD per hour");
  row.usd_per_hour = *value;
  return {};
}

Checked set_date(std::string& target, const std::string& text) {
  if (!text.empty() && text != "undated" && !parse_day(text))
    return invalid(in_quotes(text) + " is not a date; expected YYYY-MM-DD or undated");
  target = text;
  return {};
}

Checked set_text(std::string& target, const std::string& text) {
  // The text is printed to terminals and pasted into shells.
  const auto is_control = [](unsigned char c) { return c < ' ' || c == 0x7f; };
  if (std::any_of(text.begin(), text.end(), is_control)) return invalid("text contains a control character");
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
    if (column == kColumns.end()) return invalid(position + "unknown column " + in_quotes(field.text));
    if (std::find(out.begin(), out.end(), column) != out.end())
      return invalid(position + "duplicate column " + in_quotes(field.text));
    out.push_back(column);
  }
  for (const Column& column : kColumns) {
    if (column.is_required && std::find(out.begin(), out.end(), &column) == out.end())
      return invalid(csv_position(name, header.line, 1) + "missing column " + in_quotes(column.name));
  }
  return out;
}

// The first row names the columns. Errors are kInvalidArgument, "NAME:line:column: reason".
Result<std::vector<VmType>> vm_rows(const std::vector<CsvRow>& rows, const std::string& name) {
  if (rows.empty()) return invalid(csv_position(name, 1, 1) + "expected a header line, found an empty table");
  SLUICE_ASSIGN_OR_RETURN(columns, columns_of(rows.front(), name));
  if (rows.size() > kMaxRows) {
    return invalid(csv_position(name, rows[kMaxRows].line, 1) + "table has more than " +
                   std::to_string(kMaxRows) + " rows");
  }
  std::vector<VmType> out;
  std::vector<size_t> lines;
  for (size_t i = 1; i < rows.size(); ++i) {
    const CsvRow& row = rows[i];
    if (row.fields.size() != columns.size()) {
      return invalid(csv_position(name, row.line, row.fields.back().column) + "expected " +
                     std::to_string(columns.size()) + " fields, found " + std::to_string(row.fields.size()));
    }
    VmType type;
    type.table = name;
    for (size_t f = 0; f < row.fields.size(); ++f) {
      if (auto set = columns[f]->set(type, row.fields[f].text); !set)
        return invalid(csv_position(name, row.line, row.fields[f].column) + set.error().text);
    }
    for (size_t j = 0; j < out.size(); ++j) {
      if (same_entry(out[j], type) && out[j].network() == type.network())
        return invalid(csv_position(name, row.line, 1) + type.type + " is already defined in line " +
                       std::to_string(lines[j]));
    }
    out.push_back(std::move(type));
    lines.push_back(row.line);
  }
  return out;
}

std::string role_name(VmRole role) {
  return role == VmRole::kWorker ? "worker" : "reducer";
}

// Returns "; did you mean c8gn.16xlarge?", or nothing for an empty table.
std::string suggestion(const std::vector<VmType>& rows, std::string_view type, VmRole role) {
  std::vector<std::string_view> names;
  for (const VmType& row : rows) {
    if (row.role == role) names.push_back(row.type);
  }
  if (names.empty()) return {};
  return "; did you mean " + std::string(nearest_name(type, names)) + "?";
}

}  // namespace

VmNetwork VmType::network() const {
  if (kind.starts_with("InfiniBand")) return VmNetwork::kInfiniBand;
  return kind.starts_with("EFA") ? VmNetwork::kEfa : VmNetwork::kEthernet;
}

bool same_entry(const VmType& a, const VmType& b) noexcept {
  return a.provider == b.provider && a.type == b.type && a.role == b.role && a.tier1() == b.tier1();
}

std::string_view to_string(VmNetwork network) noexcept {
  static constexpr std::string_view kNames[] = {"Ethernet", "InfiniBand", "EFA"};
  return kNames[static_cast<size_t>(network)];
}

bool is_vm_name(std::string_view text) noexcept {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '+' || c == '-';
  };
  return !text.empty() && text.size() <= 64 && text[0] != '-' && std::all_of(text.begin(), text.end(), fits);
}

const VmCatalog& VmCatalog::built_in() {
  static const VmCatalog catalog = [] {
    auto parsed = parse(kVmTable, "vm-bandwidth.csv");
    SLUICE_ASSERT(parsed.has_value());
    return std::move(*parsed);
  }();
  return catalog;
}

Result<VmCatalog> VmCatalog::parse(std::string_view text, const std::string& name) {
  SLUICE_ASSIGN_OR_RETURN(rows, parse_csv(text, name));
  SLUICE_ASSIGN_OR_RETURN(types, vm_rows(rows, name));
  VmCatalog out;
  out.rows_ = std::move(types);
  return out;
}

Result<VmCatalog> VmCatalog::read(const std::string& path) {
  using Status = FileContents::Status;
  const FileContents file = read_file_contents(path, kMaxCsvBytes, FileKind::kAny);
  if (file.status == Status::kNotFound || file.status == Status::kUnreadable)
    return fail(Errc::kSystem, "cannot read VM type table " + path + ": " + std::strerror(file.error));
  return parse(file.text, path);  // reports a text that is too long
}

VmCatalog VmCatalog::with(const VmCatalog& other) const {
  VmCatalog out;
  for (const VmType& row : rows_) {
    const bool replaced = std::any_of(other.rows_.begin(), other.rows_.end(),
                                      [&](const VmType& other_row) { return same_entry(row, other_row); });
    if (!replaced) out.rows_.push_back(row);
  }
  out.rows_.insert(out.rows_.end(), other.rows_.begin(), other.rows_.end());
  return out;
}

Result<const VmType*> VmCatalog::find(std::string_view type, VmRole role, std::string_view provider,
                                      bool tier1, bool ethernet) const {
  const VmType* standard_row = nullptr;
  const VmType* tier1_row = nullptr;
  const VmType* rdma_row = nullptr;
  const VmType* other_role_row = nullptr;
  for (const VmType& row : rows_) {
    if (row.type != type || (!provider.empty() && row.provider != provider)) continue;
    if (row.role != role) {
      other_role_row = &row;
      continue;
    }
    const VmType*& found = row.network() != VmNetwork::kEthernet ? rdma_row
                           : row.tier1()                         ? tier1_row
                                                                 : standard_row;
    if (found != nullptr) {
      return invalid("the table lists " + std::string(type) + " for " + found->provider + " and for " +
                     row.provider + "; set --provider");
    }
    found = &row;
  }
  if (rdma_row != nullptr && !ethernet) return rdma_row;
  if (tier1 && tier1_row != nullptr) return tier1_row;
  if (standard_row != nullptr) return standard_row;
  if (tier1_row != nullptr)
    return invalid("the table lists " + std::string(type) +
                   " only with Tier_1 networking; set --tier1 to use it");
  if (rdma_row != nullptr) return invalid("the table has no Ethernet bandwidth of " + std::string(type));
  if (other_role_row != nullptr) {
    return invalid("the table lists " + std::string(type) + " as a " + role_name(other_role_row->role) +
                   " type, not as a " + role_name(role) + " type");
  }
  return invalid("the table has no " + role_name(role) + " type " + in_quotes(type) +
                 (provider.empty() ? "" : " of " + std::string(provider)) + suggestion(rows_, type, role));
}

std::vector<const VmType*> VmCatalog::reducers_of(std::string_view provider, bool tier1) const {
  std::vector<const VmType*> out;
  for (const VmType& row : rows_) {
    if (row.role != VmRole::kReducer || row.provider != provider || (row.tier1() && !tier1)) continue;
    const bool has_better =
        tier1 && !row.tier1() && std::any_of(rows_.begin(), rows_.end(), [&](const VmType& other) {
          return other.provider == row.provider && other.type == row.type && other.tier1();
        });
    if (!has_better) out.push_back(&row);
  }
  return out;
}

}  // namespace sluice::config
