#include "bench/e2e/worker/rank_info.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

namespace sluice::bench {

RankInfo RankInfo::of_this_process(uint32_t rank) {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  std::string name = host.data();
  return {.rank = rank, .pid = getpid(), .host = name.substr(0, name.find('.'))};
}

std::string RankInfo::text() const {
  return fmt::format("{} {}", pid, host);
}

RankInfo RankInfo::parse(uint32_t rank, const std::string& text) {
  const size_t space = text.find(' ');
  RankInfo info{.rank = rank, .pid = std::atoi(text.c_str()), .host = {}};
  if (space != std::string::npos) info.host = text.substr(space + 1);
  return info;
}

std::vector<RankInfo> gather_ranks(WorkerSession& session) {
  std::vector<RankInfo> ranks;
  for (const std::string& text : session.gather(RankInfo::of_this_process(session.rank()).text()))
    ranks.push_back(RankInfo::parse(static_cast<uint32_t>(ranks.size()), text));
  return ranks;
}

}  // namespace sluice::bench
