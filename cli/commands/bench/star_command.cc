// Implements `sluice bench star`, `star-server` and `star-worker`.
#include "bench/e2e/star/star_bench.h"

#include <memory>

#include "bench/e2e/star/star_server.h"
#include "cli/commands/bench/bench_commands.h"
#include "cli/options/listen_address.h"
#include "cli/options/option_set.h"
#include "cli/options/worker_flags.h"

namespace sluice::cli {
namespace {

void add_star(CLI::App& bench, Command& chosen) {
  CLI::App* app = bench.add_subcommand(
      "star", "compare a reducer's CPU time with that of a plain TCP star of the same traffic");
  struct Flags {
    bench::StarBenchOptions options;
    bool no_crc = false;
  };
  auto flags = std::make_shared<Flags>();
  bench::StarBenchOptions& o = flags->options;
  OptionSet set(*app);
  set.number("--workers", o.workers, "worker processes");
  set.size("--size", o.bytes, "bytes per worker and round; a multiple of --chunk");
  set.size("--chunk", o.chunk_bytes, "chunk size in bytes, of the star and of Sluice");
  set.size("--window", o.window_bytes, "bytes in flight per worker, of the star and of Sluice");
  set.number("--rounds", o.rounds, "number of rounds; results are medians");
  set.number("--threads", o.progress_threads, "progress threads of a worker's session: 1 or 0")
      ->check(CLI::IsMember({0, 1}));
  set.flag("--no-crc", flags->no_crc, "send Sluice's payloads without a checksum");
  set.flag("--health", o.health, "start the reducer with --health");
  set.number("--max-ratio", o.max_ratio,
             "exit 2 when the reducer's CPU time exceeds this multiple of the star's; 0: no limit");
  set.output_file("--json", o.json, "write results as JSON");
  set.output_file("--csv", o.csv, "write results as CSV, one line per round");
  run_when_selected(*app, chosen, flags, [](const Flags& f) {
    bench::StarBenchOptions options = f.options;
    options.payload_crc = !f.no_crc;
    return bench::run_star_bench(options);
  });
}

void add_star_server(CLI::App& bench, Command& chosen) {
  CLI::App* app = bench.add_subcommand(
      "star-server", "run only the server of the TCP star, for `bench latency --star` on other hosts");
  app->footer(
      "Replies to each worker when all workers of a run have sent the same number of bytes, without sums and "
      "without a protocol. Serves one run after another until a signal.\nThere is no authentication: listen "
      "only on a network of the workers.");
  struct Flags {
    bench::StarServerOptions options;
    std::string listen = "127.0.0.1:7471";
  };
  auto flags = std::make_shared<Flags>();
  OptionSet set(*app);
  set.text("--listen", flags->listen, "HOST:PORT",
           "address to listen on; *:PORT means all addresses, port 0 lets the OS choose");
  set.text("--port-file", flags->options.port_file, "FILE",
           "write the bound port to this file once connections are accepted");
  set.duration("--spin", flags->options.spin,
               "time that the server polls before it sleeps, like reducer --spin");
  run_when_selected(*app, chosen, flags, [](Flags& f) -> int {
    const ListenAddress address = require_listen_address(f.listen);
    f.options.host = address.host;
    f.options.port = address.port;
    bench::run_star_server(f.options);
  });
}

// Adds the hidden command that `bench star` starts.
void add_star_worker(CLI::App& bench, Command& chosen) {
  CLI::App* worker = bench.add_subcommand("star-worker", "")->group("");
  struct Flags {
    WorkerFlags worker{4};
    bench::StarWorkerOptions options;
  };
  auto flags = std::make_shared<Flags>();
  OptionSet set(*worker);
  flags->worker.add_to(set);
  set.number("--star-port", flags->options.star_port, "");
  set.size("--size", flags->options.bytes, "");
  run_when_selected(*worker, chosen, flags, [](Flags& f) {
    const bench::WorkerOptions options = f.worker.worker();
    if (options.slot_bytes != 0) f.options.chunk_bytes = options.slot_bytes;
    f.options.window_bytes = options.window_bytes;
    return bench::run_star_worker(f.options, options);
  });
}

}  // namespace

void add_bench_star(CLI::App& bench, Command& chosen) {
  add_star(bench, chosen);
  add_star_server(bench, chosen);
  add_star_worker(bench, chosen);
}

}  // namespace sluice::cli
