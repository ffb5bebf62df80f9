// What VM types carry and cost: the table that is built into the program (config/data/vm-bandwidth.csv), and
// a user's own over it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace sluice::config {

enum class VmRole : uint8_t { kWorker, kReducer };

// Two VMs reach each other at the rates of the table only over the same one.
enum class VmNetwork : uint8_t { kEthernet, kInfiniBand, kEfa };

struct VmType {
  std::string provider;
  std::string type;  // [A-Za-z0-9._+-]: safe in a shell, in YAML and in a URL
  VmRole role = VmRole::kReducer;
  double gbps = 0;    // 1e9 bit/s, each way
  std::string kind;   // what the figure is, as the table says it
  std::string arch;   // "x86_64", "arm64", or empty: not known
  uint32_t gpus = 0;  // 0: not known
  std::optional<double> usd_per_hour;
  std::string price_region;
  std::string bandwidth_source;
  std::string bandwidth_date;  // "2026-08-18", "undated" or empty
  std::string price_source;
  std::string price_date;
  std::string note;
  std::string table;  // what the row's table is called

  // The figure holds with paid Tier_1 networking only.
  [[nodiscard]] bool tier1() const { return kind == "egress-tier1"; }
  [[nodiscard]] VmNetwork network() const;
};

// They say the same of the same: a table may hold one of them, and a row of a table over it replaces the
// other.
[[nodiscard]] bool same_entry(const VmType& a, const VmType& b) noexcept;

// "Ethernet", "InfiniBand", "EFA".
[[nodiscard]] std::string_view to_string(VmNetwork network) noexcept;

// Letters, digits, '.', '_', '+' and '-', 1 to 64 of them: what a type or a provider may be called.
[[nodiscard]] bool is_vm_name(std::string_view text) noexcept;

class VmCatalogue {
 public:
  // The table that this program was built with. It was checked by a test, so reading it cannot fail.
  [[nodiscard]] static const VmCatalogue& built_in();

  // `text` as the header of config/data/vm-bandwidth.csv describes it: provider, type, role and gbps are
  // wanted, other columns may be missing, unknown ones are refused. kInvalidArgument says
  // "NAME:line:column: ...". `name`: what messages call the table.
  [[nodiscard]] static Result<VmCatalogue> parse(std::string_view text, const std::string& name);

  // The file's rows. kSystem where it cannot be read.
  [[nodiscard]] static Result<VmCatalogue> read(const std::string& path);

  // This table with `other` over it: a row of `other` replaces its same_entry().
  [[nodiscard]] VmCatalogue with(const VmCatalogue& other) const;

  // The row for a type as a user named it; `provider` may be empty. Where there are rows with and without
  // Tier_1, `tier1` picks. kInvalidArgument says what is not there, and what is called nearly so.
  [[nodiscard]] Result<const VmType*> find(std::string_view type, VmRole role, std::string_view provider,
                                           bool tier1) const;

  // Reducers of a provider; of those with two rows, the one that `tier1` picks. Without `tier1` no row that
  // takes it.
  [[nodiscard]] std::vector<const VmType*> reducers_of(std::string_view provider, bool tier1) const;

  [[nodiscard]] const std::vector<VmType>& rows() const noexcept { return rows_; }

 private:
  std::vector<VmType> rows_;
};

}  // namespace sluice::config
