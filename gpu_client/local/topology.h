// Struct Topology says on which host each rank of a session runs, and which rank of a host serves which rail.
//
// A rail is a session with one member for each host. Every piece travels on one rail, so all rails together
// move a host's data once, however many ranks it has. There are as many rails as the host with most ranks has
// ranks; rank r of a host with n ranks serves the rails q with q mod n = r (docs/design/adr/0028).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/ids.h"

namespace sluice::local {

inline constexpr size_t kMaxHostName = 64;  // bytes of SLUICE_HOST_ID

// "rank 3", or "ranks 2, 3".
[[nodiscard]] inline std::string name_ranks(const std::vector<Rank>& ranks) {
  constexpr size_t kMost = 8;
  std::string out = ranks.size() == 1 ? "rank" : "ranks";
  for (size_t i = 0; i < std::min(ranks.size(), kMost); ++i)
    out += (i == 0 ? " " : ", ") + std::to_string(ranks[i]);
  if (ranks.size() > kMost) out += " and " + std::to_string(ranks.size() - kMost) + " more";
  return out;
}

struct Topology {
  std::vector<uint32_t> host_of;            // by rank; hosts are numbered by their first ranks
  std::vector<uint32_t> local_of;           // by rank: index among the ranks of its host
  std::vector<std::vector<Rank>> ranks_of;  // by host, ascending
  uint32_t rails = 0;

  // `host_of`: as above.
  explicit Topology(std::vector<uint32_t> hosts) : host_of(std::move(hosts)) {
    for (Rank rank = 0; rank < host_of.size(); ++rank) {
      const uint32_t host = host_of[rank];
      if (host >= ranks_of.size()) ranks_of.resize(host + 1);
      local_of.push_back(static_cast<uint32_t>(ranks_of[host].size()));
      ranks_of[host].push_back(rank);
      rails = std::max(rails, local_of.back() + 1);
    }
  }
  [[nodiscard]] static Topology of_one_host(uint32_t ranks) { return Topology(std::vector<uint32_t>(ranks)); }

  [[nodiscard]] uint32_t hosts() const noexcept { return static_cast<uint32_t>(ranks_of.size()); }
  [[nodiscard]] uint32_t ranks() const noexcept { return static_cast<uint32_t>(host_of.size()); }
  // All hosts have as many ranks.
  [[nodiscard]] bool is_even() const noexcept { return ranks() == hosts() * rails; }
  [[nodiscard]] uint32_t local_ranks(uint32_t host) const noexcept {
    return static_cast<uint32_t>(ranks_of[host].size());
  }
  // The index of the rank of `host` that serves the rail.
  [[nodiscard]] uint32_t server_of(uint32_t rail, uint32_t host) const noexcept {
    return rail % local_ranks(host);
  }
};

}  // namespace sluice::local
