#include "bench/e2e/worker/rank_info.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "core/units.h"

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

void join_host(uint32_t rank, uint32_t ranks_per_host) {
  ::setenv("SLUICE_HOST_ID", std::to_string(rank / ranks_per_host).c_str(), 1);
  // Ranks that stand for hosts need not find out that they do.
  ::setenv("SLUICE_HOSTS", ranks_per_host > 1 ? "auto" : "off", ranks_per_host > 1 ? 1 : 0);
}

uint32_t host_count(const WorkerOptions& worker) noexcept {
  if (worker.ranks_per_host == 0) return worker.ranks;
  return static_cast<uint32_t>(div_ceil(worker.ranks, worker.ranks_per_host));
}

std::string workers_text(const WorkerOptions& worker) {
  const std::string workers = fmt::format("{} worker{}", worker.ranks, worker.ranks == 1 ? "" : "s");
  if (worker.ranks_per_host <= 1) return workers;
  const uint32_t hosts = host_count(worker);
  std::string text =
      fmt::format("{} on {} host{} x {} ranks", workers, hosts, hosts == 1 ? "" : "s", worker.ranks_per_host);
  if (const uint32_t rest = worker.ranks % worker.ranks_per_host; rest != 0)
    text += fmt::format(", the last with {}", rest);
  return text;
}

nlohmann::ordered_json ranks_per_host_json(const WorkerOptions& worker) {
  if (worker.ranks_per_host == 0) return nullptr;
  return worker.ranks_per_host;
}

}  // namespace sluice::bench
