#include "bench/e2e/worker/rank_info.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

namespace sluice::bench {

std::vector<RankInfo> gather_ranks(WorkerSession& session) {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  const std::string name = host.data();
  std::vector<RankInfo> ranks;
  for (const std::string& text :
       session.gather(fmt::format("{} {}", getpid(), name.substr(0, name.find('.'))))) {
    RankInfo info{.rank = static_cast<uint32_t>(ranks.size()), .pid = std::atoi(text.c_str()), .host = {}};
    if (const size_t space = text.find(' '); space != std::string::npos) info.host = text.substr(space + 1);
    ranks.push_back(std::move(info));
  }
  return ranks;
}

}  // namespace sluice::bench
