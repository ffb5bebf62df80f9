// Lists the bandwidth and the price of VM types: the table embedded in the program
// (config/data/vm-bandwidth.csv), optionally overridden by a user's table.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace sluice::config {

enum class VmRole : uint8_t { kWorker, kReducer };

// The bandwidth of a row holds only between two VMs on the same kind of network.
enum class VmNetwork : uint8_t { kEthernet, kInfiniBand, kEfa };

struct VmType {
  std::string provider;
  std::string type;  // [A-Za-z0-9._+-]: safe in a shell, in YAML and in a URL
  VmRole role = VmRole::kReducer;
  double gbps = 0;    // 1e9 bit/s in each direction
  std::string kind;   // meaning of the bandwidth, as in the table
  std::string arch;   // "x86_64", "arm64"; empty: unknown
  uint32_t gpus = 0;  // 0: unknown
  std::optional<double> usd_per_hour;
  std::string price_region;
  std::string bandwidth_source;
  std::string bandwidth_date;  // "2026-08-18", "undated" or empty
  std::string price_source;
  std::string price_date;
  std::string note;
  std::string table;  // name of the table that contains the row

  // The bandwidth requires paid Tier_1 networking.
  [[nodiscard]] bool tier1() const { return kind == "egress-tier1"; }
  [[nodiscard]] VmNetwork network() const;
};

// True when both rows describe the same VM type in the same role. A table may contain only one of them for
// each network, and the row of an overriding table replaces the others.
[[nodiscard]] bool same_entry(const VmType& a, const VmType& b) noexcept;

// Returns "Ethernet", "InfiniBand" or "EFA".
[[nodiscard]] std::string_view to_string(VmNetwork network) noexcept;

// True for 1 to 64 letters, digits, '.', '_', '+' and '-': the names of VM types and providers.
[[nodiscard]] bool is_vm_name(std::string_view text) noexcept;

// Class VmCatalog holds a table of VM types for `sluice plan`. It is immutable once built.
class VmCatalog {
 public:
  // Returns the embedded table. A test checks it, so parsing it cannot fail.
  [[nodiscard]] static const VmCatalog& built_in();

  // Parses a table in the format that the header of config/data/vm-bandwidth.csv describes. The columns
  // provider, type, role and gbps are required, the others optional, unknown ones rejected. `name` is the
  // table's name in messages. Errors are kInvalidArgument, "NAME:line:column: ...".
  [[nodiscard]] static Result<VmCatalog> parse(std::string_view text, const std::string& name);

  // Parses a file. Returns kSystem when it cannot be read.
  [[nodiscard]] static Result<VmCatalog> read(const std::string& path);

  // Returns this table overridden by `other`: a row of `other` replaces its same_entry().
  [[nodiscard]] VmCatalog with(const VmCatalog& other) const;

  // Returns the row of a type; `provider` may be empty. `tier1` selects between a row with and one without
  // Tier_1. Of a row for Ethernet and one for an RDMA network, returns the one that NCCL would use, which is
  // RDMA, or with `ethernet` the other one. Returns kInvalidArgument with the reason and the most similar
  // name.
  [[nodiscard]] Result<const VmType*> find(std::string_view type, VmRole role, std::string_view provider,
                                           bool tier1, bool ethernet = false) const;

  // Returns the reducer types of a provider. With `tier1`, a type's Tier_1 row replaces its other row;
  // without it, Tier_1 rows are left out.
  [[nodiscard]] std::vector<const VmType*> reducers_of(std::string_view provider, bool tier1) const;

  [[nodiscard]] const std::vector<VmType>& rows() const noexcept { return rows_; }

 private:
  std::vector<VmType> rows_;
};

}  // namespace sluice::config
