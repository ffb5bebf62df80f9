#include "config/sizing/vm_catalogue.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "config/nearest_name.h"
#include "config/plain_text.h"
#include "config/sizing/csv_table.h"
#include "config/sizing/vm_rows.h"
#include "config/whole_file.h"
#include "core/assert.h"

namespace sluice::config {

// Generated from config/data/vm-bandwidth.csv (CMakeLists.txt).
extern const std::string_view kVmTable;

namespace {

tl::unexpected<Error> bad(std::string text) {
  return fail(Errc::kInvalidArgument, std::move(text));
}

std::string_view word(VmRole role) {
  return role == VmRole::kWorker ? "worker" : "reducer";
}

// "; c8gn.16xlarge is the nearest name there", or nothing in an empty table.
std::string nearest(const std::vector<VmType>& rows, std::string_view type, VmRole role) {
  std::vector<std::string_view> names;
  for (const VmType& row : rows) {
    if (row.role == role) names.push_back(row.type);
  }
  if (names.empty()) return {};
  return "; " + std::string(nearest_name(type, names)) + " is the nearest name there";
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

const VmCatalogue& VmCatalogue::built_in() {
  static const VmCatalogue catalogue = [] {
    auto parsed = parse(kVmTable, "vm-bandwidth.csv");
    SLUICE_ASSERT(parsed.has_value());
    return std::move(*parsed);
  }();
  return catalogue;
}

Result<VmCatalogue> VmCatalogue::parse(std::string_view text, const std::string& name) {
  auto rows = parse_csv(text, name);
  if (!rows) return tl::unexpected(rows.error());
  auto types = vm_rows(*rows, name);
  if (!types) return tl::unexpected(types.error());
  VmCatalogue out;
  out.rows_ = std::move(*types);
  return out;
}

Result<VmCatalogue> VmCatalogue::read(const std::string& path) {
  const WholeFile file = read_whole_file(path, kMaxCsvBytes, FileKind::kAny);
  if (file.end == WholeFile::End::kMissing || file.end == WholeFile::End::kUnreadable) {
    return fail(Errc::kSystem, "can't read the table of VM types " + path + ": " + std::strerror(file.error));
  }
  return parse(file.text, path);  // which says that it is too long
}

VmCatalogue VmCatalogue::with(const VmCatalogue& other) const {
  VmCatalogue out;
  for (const VmType& row : rows_) {
    const bool replaced = std::any_of(other.rows_.begin(), other.rows_.end(),
                                      [&](const VmType& theirs) { return same_entry(row, theirs); });
    if (!replaced) out.rows_.push_back(row);
  }
  out.rows_.insert(out.rows_.end(), other.rows_.begin(), other.rows_.end());
  return out;
}

Result<const VmType*> VmCatalogue::find(std::string_view type, VmRole role, std::string_view provider,
                                        bool tier1) const {
  const VmType* plain = nullptr;
  const VmType* tiered = nullptr;
  const VmType* of_other_role = nullptr;
  for (const VmType& row : rows_) {
    if (row.type != type || (!provider.empty() && row.provider != provider)) continue;
    if (row.role != role) {
      of_other_role = &row;
      continue;
    }
    const VmType*& found = row.tier1() ? tiered : plain;
    if (found != nullptr) {
      return bad(std::string(type) + " is in the table for " + found->provider + " and for " + row.provider +
                 ": --provider picks one");
    }
    found = &row;
  }
  if (tier1 && tiered != nullptr) return tiered;
  if (plain != nullptr) return plain;
  if (tiered != nullptr)
    return bad(std::string(type) + " is in the table with Tier_1 networking alone: --tier1 takes that");
  if (of_other_role != nullptr) {
    return bad(std::string(type) + " stands in the table as a " + std::string(word(of_other_role->role)) +
               ", not as a " + std::string(word(role)));
  }
  return bad(std::string(word(role)) + " type " + quoted(type) + " is not in the table" +
             (provider.empty() ? "" : " of " + std::string(provider)) + nearest(rows_, type, role));
}

std::vector<const VmType*> VmCatalogue::reducers_of(std::string_view provider, bool tier1) const {
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
