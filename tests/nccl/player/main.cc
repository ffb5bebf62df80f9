// The player: processes that load a plugin and call it as NCCL does. A scenario (scenarios.h) selects the
// calls.
#include <getopt.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "tests/nccl/player/job.h"
#include "tests/nccl/player/library.h"
#include "tests/nccl/player/scenarios.h"

namespace {

using player::Options;

struct NamedScenario {
  const char* name;
  player::Scenario run;
};

constexpr NamedScenario kScenarios[] = {
    {"kinds", player::run_kinds},
    {"in-place", player::run_in_place},
    {"window", player::run_window},
    {"order", player::run_order},
    {"registration", player::run_registration},
    {"budget", player::run_budget},
    {"flood", player::run_flood},
    {"communicators", player::run_communicators},
    {"heads", player::run_heads},
    {"repeat", player::run_repeat},
    {"split", player::run_split},
    {"shrink", player::run_shrink},
    {"shrink-idle", player::run_shrink_idle},
    {"grow", player::run_grow},
    {"abort", player::run_abort},
    {"abort-one", player::run_abort_one},
    {"connect", player::run_connect},
    {"until-error", player::run_until_error},
    {"until-stopped", player::run_until_stopped},
    {"late", player::run_late},
    {"net-ring", player::run_net_ring},
    {"net-pairs", player::run_net_pairs},
    {"net-close", player::run_net_close},
    {"net-killed", player::run_net_killed},
    {"capabilities", player::run_capabilities},
    {"tuner", player::run_tuner},
    {"profiler", player::run_profiler},
    {"verdict", player::run_verdict},
    {"reload", player::run_reload},
    {"mixed-nodes", player::run_mixed_nodes},
    {"dropped-error", player::run_dropped_error},
};

constexpr option kOptions[] = {
    {"scenario", required_argument, nullptr, 's'},
    {"abi", required_argument, nullptr, 'a'},
    {"ranks", required_argument, nullptr, 'n'},
    {"heads", required_argument, nullptr, 'h'},
    {"head-processes", no_argument, nullptr, 'H'},
    {"communicators", required_argument, nullptr, 'c'},
    {"busy", required_argument, nullptr, 'b'},
    {"rounds", required_argument, nullptr, 'r'},
    {"absent-rank", required_argument, nullptr, 'A'},
    {"rank-env", required_argument, nullptr, 'E'},
    {"late-rank", required_argument, nullptr, 'L'},
    {"late-ms", required_argument, nullptr, 'l'},
    {"late-until", required_argument, nullptr, 'u'},
    {"close-listener", no_argument, nullptr, 'g'},
    {"killed-rank", required_argument, nullptr, 'D'},
    {"flipped-rank", required_argument, nullptr, 'C'},
    {"device", required_argument, nullptr, 'd'},
    {"rank-network", required_argument, nullptr, 'N'},
    {"expect", required_argument, nullptr, 'e'},
    {"types", required_argument, nullptr, 't'},
    {"bytes", required_argument, nullptr, 'B'},
    {"seconds", required_argument, nullptr, 'S'},
    {"nccl", required_argument, nullptr, 'R'},
    {"verbose", no_argument, nullptr, 'v'},
    {nullptr, 0, nullptr, 0},
};

[[noreturn]] void usage() {
  std::fprintf(stderr, "usage: sluice_nccl_player PLUGIN --scenario NAME [OPTION...]\nscenarios:");
  for (const NamedScenario& scenario : kScenarios) std::fprintf(stderr, " %s", scenario.name);
  std::fprintf(stderr, "\noptions:");
  for (const option& entry : kOptions) {
    if (entry.name != nullptr)
      std::fprintf(stderr, " --%s%s", entry.name, entry.has_arg == required_argument ? " VALUE" : "");
  }
  std::fprintf(stderr, "\n");
  std::exit(64);
}

Options parse(int argc, char** argv) {
  Options options;
  for (int letter = 0; (letter = getopt_long(argc, argv, "", kOptions, nullptr)) != -1;) {
    switch (letter) {
      case 's': options.scenario = optarg; break;
      case 'a': options.abi = std::atoi(optarg); break;
      case 'n': options.ranks = std::atoi(optarg); break;
      case 'h': options.heads = std::atoi(optarg); break;
      case 'H': options.head_processes = true; break;
      case 'c': options.communicators = std::atoi(optarg); break;
      case 'b': options.busy = std::atoi(optarg); break;
      case 'r': options.rounds = std::atoi(optarg); break;
      case 'A': options.absent_rank = std::atoi(optarg); break;
      case 'E': options.rank_environment.emplace_back(optarg); break;
      case 'L': options.late_rank = std::atoi(optarg); break;
      case 'l': options.late_ms = std::atoi(optarg); break;
      case 'u': options.late_until = optarg; break;
      case 'g': options.close_listener = true; break;
      case 'D': options.killed_rank = std::atoi(optarg); break;
      case 'C': options.flipped_rank = std::atoi(optarg); break;
      case 'd': options.device = std::atoi(optarg); break;
      case 'N': options.rank_networks.emplace_back(optarg); break;
      case 'e': options.expect = optarg; break;
      case 't': options.types = optarg; break;
      case 'B': options.bytes = std::strtoull(optarg, nullptr, 10); break;
      case 'S': options.seconds = std::atof(optarg); break;
      case 'R': player::played_release = std::atoi(optarg); break;
      case 'v': options.verbose = true; break;
      default: usage();
    }
  }
  if (optind != argc - 1 || options.ranks < 1 || options.ranks > player::kMaxRanks) usage();
  options.plugin = argv[optind];
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  for (const NamedScenario& scenario : kScenarios) {
    if (options.scenario != scenario.name) continue;
    try {
      return player::run_job(options, scenario.run);
    } catch (const std::exception& e) {
      std::fprintf(stderr, "player: %s\n", e.what());
      return 1;
    }
  }
  usage();
}
