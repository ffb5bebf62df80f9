// Plays NCCL to a plugin: n processes that load it and call it as NCCL does. What is played is a scenario
// (scenarios.h).
#include <getopt.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "tests/nccl/player/job.h"
#include "tests/nccl/player/scenarios.h"

namespace {

using player::Options;

struct Named {
  const char* name;
  player::Scenario play;
};

constexpr Named kScenarios[] = {
    {"kinds", player::play_kinds},
    {"in-place", player::play_in_place},
    {"window", player::play_window},
    {"order", player::play_order},
    {"registration", player::play_registration},
    {"budget", player::play_budget},
    {"flood", player::play_flood},
    {"communicators", player::play_communicators},
    {"heads", player::play_heads},
    {"repeat", player::play_repeat},
    {"abort", player::play_abort},
    {"abort-one", player::play_abort_one},
    {"connect", player::play_connect},
    {"until-error", player::play_until_error},
    {"until-stopped", player::play_until_stopped},
    {"late", player::play_late},
    {"net-ring", player::play_net_ring},
    {"net-pairs", player::play_net_pairs},
    {"net-close", player::play_net_close},
    {"net-killed", player::play_net_killed},
    {"offer", player::play_offer},
    {"tuner", player::play_tuner},
};

constexpr option kOptions[] = {
    {"scenario", required_argument, nullptr, 's'},   {"abi", required_argument, nullptr, 'a'},
    {"ranks", required_argument, nullptr, 'n'},      {"heads", required_argument, nullptr, 'h'},
    {"heads-apart", no_argument, nullptr, 'H'},      {"communicators", required_argument, nullptr, 'c'},
    {"busy", required_argument, nullptr, 'b'},       {"rounds", required_argument, nullptr, 'r'},
    {"absent", required_argument, nullptr, 'A'},     {"rank-env", required_argument, nullptr, 'E'},
    {"late-rank", required_argument, nullptr, 'L'},  {"late-ms", required_argument, nullptr, 'l'},
    {"late-until", required_argument, nullptr, 'u'}, {"gone", no_argument, nullptr, 'g'},
    {"dies", required_argument, nullptr, 'D'},       {"contrary", required_argument, nullptr, 'C'},
    {"device", required_argument, nullptr, 'd'},     {"rank-network", required_argument, nullptr, 'N'},
    {"expect", required_argument, nullptr, 'e'},     {"types", required_argument, nullptr, 't'},
    {"bytes", required_argument, nullptr, 'B'},      {"seconds", required_argument, nullptr, 'S'},
    {"verbose", no_argument, nullptr, 'v'},          {nullptr, 0, nullptr, 0},
};

[[noreturn]] void usage() {
  std::fprintf(stderr, "usage: player PLUGIN --scenario NAME [option...]\nscenarios:");
  for (const Named& scenario : kScenarios) std::fprintf(stderr, " %s", scenario.name);
  std::fprintf(stderr, "\noptions:");
  for (const option& one : kOptions) {
    if (one.name != nullptr)
      std::fprintf(stderr, " --%s%s", one.name, one.has_arg == required_argument ? " VALUE" : "");
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
      case 'H': options.heads_apart = true; break;
      case 'c': options.communicators = std::atoi(optarg); break;
      case 'b': options.busy = std::atoi(optarg); break;
      case 'r': options.rounds = std::atoi(optarg); break;
      case 'A': options.absent = std::atoi(optarg); break;
      case 'E': options.rank_environment.emplace_back(optarg); break;
      case 'L': options.late_rank = std::atoi(optarg); break;
      case 'l': options.late_ms = std::atoi(optarg); break;
      case 'u': options.late_until = optarg; break;
      case 'g': options.gone = true; break;
      case 'D': options.dies = std::atoi(optarg); break;
      case 'C': options.contrary = std::atoi(optarg); break;
      case 'd': options.device = std::atoi(optarg); break;
      case 'N': options.rank_networks.emplace_back(optarg); break;
      case 'e': options.expect = optarg; break;
      case 't': options.types = optarg; break;
      case 'B': options.bytes = std::strtoull(optarg, nullptr, 10); break;
      case 'S': options.seconds = std::atof(optarg); break;
      case 'v': options.verbose = true; break;
      default: usage();
    }
  }
  if (optind != argc - 1 || options.ranks < 1 || options.ranks > player::kMostRanks) usage();
  options.plugin = argv[optind];
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  for (const Named& scenario : kScenarios) {
    if (options.scenario != scenario.name) continue;
    try {
      return player::run_job(options, scenario.play);
    } catch (const std::exception& e) {
      std::fprintf(stderr, "player: %s\n", e.what());
      return 1;
    }
  }
  usage();
}
