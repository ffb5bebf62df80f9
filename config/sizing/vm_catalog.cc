#include "config/sizing/vm_catalog.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "config/file_contents.h"
#include "config/nearest_name.h"
#include "config/printable_text.h"
#include "config/sizing/csv_table.h"
#include "config/sizing/vm_rows.h"
#include "core/assert.h"

namespace sluice::config {

// Generated from config/data/vm-bandwidth.csv (CMakeLists.txt).
extern const std::string_view kVmTable;

namespace {

tl::unexpected<Error> bad(std::string text) {
  return fail(Errc::kInvalidArgument, std::move(text));
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
  switch (network) {
    case VmNetwork::kEthernet: return "Ethernet";
    case VmNetwork::kInfiniBand: return "InfiniBand";
    case VmNetwork::kEfa: return "EFA";
  }
  return "unknown";
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
  auto rows = parse_csv(text, name);
  if (!rows) return tl::unexpected(rows.error());
  auto types = vm_rows(*rows, name);
  if (!types) return tl::unexpected(types.error());
  VmCatalog out;
  out.rows_ = std::move(*types);
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
                                      bool tier1) const {
  const VmType* standard_row = nullptr;
  const VmType* tier1_row = nullptr;
  const VmType* other_role_row = nullptr;
  for (const VmType& row : rows_) {
    if (row.type != type || (!provider.empty() && row.provider != provider)) continue;
    if (row.role != role) {
      other_role_row = &row;
      continue;
    }
    const VmType*& found = row.tier1() ? tier1_row : standard_row;
    if (found != nullptr) {
      return bad("the table lists " + std::string(type) + " for " + found->provider + " and for " +
                 row.provider + "; set --provider");
    }
    found = &row;
  }
  if (tier1 && tier1_row != nullptr) return tier1_row;
  if (standard_row != nullptr) return standard_row;
  if (tier1_row != nullptr)
    return bad("the table lists " + std::string(type) +
               " only with Tier_1 networking; set --tier1 to use it");
  if (other_role_row != nullptr) {
    return bad("the table lists " + std::string(type) + " as a " + role_name(other_role_row->role) +
               " type, not as a " + role_name(role) + " type");
  }
  return bad("the table has no " + role_name(role) + " type " + quoted(type) +
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
