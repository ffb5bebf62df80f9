// The ranks of a job: processes that are forked before any library is loaded, and a parent that monitors
// them.
#pragma once

#include <string>
#include <vector>

#include "tests/nccl/player/bootstrap.h"

namespace player {

struct Options {
  std::string plugin;
  std::string scenario;
  int abi = 12;
  int ranks = 2;
  int heads = 1;                // head groups of the scenario "heads"
  bool head_processes = false;  // each head is a process
  int communicators = 3;
  int busy = 4;  // the number of communicators that carry traffic
  int rounds = 1;
  int absent_rank = -1;         // listens and never connects, scenario "connect"
  bool close_listener = false;  // the absent rank also closes its listener, like a process that ends
  int killed_rank = -1;         // killed by the test, scenario "until-error", or by itself, "net-killed"
  int late_rank = 0;
  int late_ms = 0;            // the delay of the late rank before its first request or before connect
  std::string late_until;     // the late rank connects when all others are "waiting" or have "answered"
  int flipped_rank = -1;      // reports the opposite of its connect result, which the check must detect
  int device = 0;             // the device to use; -1: head h uses device h
  std::string expect = "ok";  // the result of connect: ok, fail, or same (on all ranks)
  std::string types;          // comma separated, "float32,int8"; empty: all supported types
  std::vector<std::string> rank_environment;  // "1:NAME=VALUE": for rank 1 only
  std::vector<std::string> rank_networks;     // "1:FILE": rank 1 enters this network namespace
  size_t bytes = 0;                           // of a message; 0: the default of the scenario
  double seconds = 60;                        // watchdog
  bool verbose = false;
};

// Rank is the view that the scenario code of one process has of the job.
class Rank {
 public:
  Rank(int index, const Options& options, Bootstrap& bootstrap)
      : index_(index), options_(options), bootstrap_(bootstrap) {}

  [[nodiscard]] int index() const { return index_; }
  [[nodiscard]] int count() const { return options_.ranks; }
  [[nodiscard]] const Options& options() const { return options_; }
  [[nodiscard]] Bootstrap& bootstrap() { return bootstrap_; }

  void barrier(const std::string& name) {
    (void)bootstrap_.all_gather("barrier " + name, index_, count(), {});
  }
  // For loops that poll. Throws Failure when another rank has aborted.
  void yield();
  void step(const std::string& what) { bootstrap_.set_step(index_, what); }
  // Prints one line to stdout, for the test that runs the player.
  void print(const std::string& line) const;

 private:
  const int index_;
  const Options& options_;
  Bootstrap& bootstrap_;
};

// Whether the test that runs the player has closed its standard input.
bool stdin_ended();

using Scenario = void (*)(Rank&);

// Returns the exit code of the player: 0 if the scenario returned on every rank, 1 if a rank threw or died, 3
// if the watchdog expired.
int run_job(const Options& options, Scenario scenario);

}  // namespace player
