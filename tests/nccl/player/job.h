// The ranks of a job: processes forked before anything is loaded, and a parent that watches them.
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
  int heads = 1;             // head groups, with the scenario "heads"
  bool heads_apart = false;  // each head a process of its own
  int communicators = 3;
  int busy = 4;  // communicators that carry traffic, of those
  int rounds = 1;
  int absent = -1;    // rank that listens and never connects, with the scenario "connect"
  bool gone = false;  // that rank closes its listener too, as its process would by ending
  int dies =
      -1;  // rank that is killed from outside, with the scenario "until-error", or by itself, "net-killed"
  int late_rank = 0;
  int late_ms = 0;         // that rank's delay before its first request, or before connect
  std::string late_until;  // before connect: until all others say that they are "waiting", or have "answered"
  int contrary = -1;       // rank whose answer of connect is turned round, to see that this is noticed
  int device = 0;          // whose properties are asked for and which is used; -1: head h has device h
  std::string expect = "ok";  // of connect: ok, fail, same
  std::string types;          // comma separated, "float32,int8"; empty: all that are supported
  std::vector<std::string> rank_environment;  // "1:NAME=VALUE": for rank 1 alone
  std::vector<std::string> rank_networks;     // "1:FILE": rank 1 enters this network namespace
  size_t bytes = 0;                           // of a message; 0: the scenario's own
  double seconds = 60;                        // watchdog
  bool verbose = false;
};

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
  void step(const std::string& what) { bootstrap_.set_step(index_, what); }
  // One line on stdout, for whoever drives the player.
  void say(const std::string& line) const;

 private:
  const int index_;
  const Options& options_;
  Bootstrap& bootstrap_;
};

using Scenario = void (*)(Rank&);

// Exit code of the player: 0 when every rank's scenario returned; 1 when one threw or died; 3 when the
// watchdog ended it.
int run_job(const Options& options, Scenario scenario);

}  // namespace player
