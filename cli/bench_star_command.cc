// `sluice bench star` and what it is made of.
#include "bench/e2e/star_bench.h"

#include <memory>

#include "bench/e2e/star_server.h"
#include "bench/e2e/star_worker.h"
#include "cli/bench_commands.h"
#include "cli/listen_address.h"
#include "cli/option_set.h"
#include "cli/worker_flags.h"

namespace sluice::cli {
namespace {

void add_star(CLI::App& bench, Command& chosen) {
  CLI::App* app =
      bench.add_subcommand("star", "a reducer's CPU time beside that of a bare TCP star of the same bytes");
  struct Flags {
    bench::StarBenchOptions options;
    bool no_crc = false;
  };
  auto flags = std::make_shared<Flags>();
  bench::StarBenchOptions& o = flags->options;
  OptionSet set(*app);
  set.number("--workers", o.workers, "worker processes");
  set.size("--size", o.bytes, "bytes per worker and round; a multiple of --chunk");
  set.size("--chunk", o.chunk_bytes, "bytes of a chunk, both for the star and for Sluice");
  set.size("--window", o.window_bytes, "bytes in flight per worker, both");
  set.number("--rounds", o.rounds, "rounds; the medians count");
  set.number("--threads", o.progress_threads, "progress threads of a worker's session: 1 or 0")
      ->check(CLI::IsMember({0, 1}));
  set.flag("--no-crc", flags->no_crc, "no checksum on Sluice's payloads");
  set.number("--max-ratio", o.max_ratio, "exit 2 when the reducer costs more than this many stars; 0: any");
  set.text("--json", o.json, "FILE", "results");
  set.text("--csv", o.csv, "FILE", "results, one line per round");
  app->callback([flags, &chosen] {
    chosen = [flags]() -> int {
      bench::StarBenchOptions options = flags->options;
      options.payload_crc = !flags->no_crc;
      return bench::run_star_bench(options);
    };
  });
}

void add_star_server(CLI::App& bench, Command& chosen) {
  CLI::App* app = bench.add_subcommand(
      "star-server", "the bare TCP star alone, for workers of `bench latency --star` on other hosts");
  app->footer(
      "Answers each worker once all of a run have sent as many bytes: no adding, no protocol. One run after "
      "another, until a signal. It has no\nauthentication and keeps no data: listen where workers are.");
  struct Flags {
    bench::StarServerOptions options;
    std::string listen = "127.0.0.1:7471";
  };
  auto flags = std::make_shared<Flags>();
  OptionSet set(*app);
  set.text("--listen", flags->listen, "HOST:PORT",
           "address to listen on; *:PORT is all addresses, port 0 is chosen by the OS");
  set.text("--port-file", flags->options.port_file, "FILE", "write the bound port here once it listens");
  set.duration("--spin", flags->options.spin, "how long it polls before it sleeps, as reducer --spin");
  app->callback([flags, &chosen] {
    chosen = [flags]() -> int {
      const ListenAddress address = parse_listen(flags->listen);
      flags->options.host = address.host;
      flags->options.port = address.port;
      bench::run_star_server(flags->options);
    };
  });
}

// What `bench star` starts; not for people.
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
  worker->callback([flags, &chosen] {
    chosen = [flags]() -> int {
      const bench::WorkerOptions options = flags->worker.worker();
      if (options.slot_bytes != 0) flags->options.chunk_bytes = options.slot_bytes;
      flags->options.window_bytes = options.window_bytes;
      return bench::run_star_worker(flags->options, options);
    };
  });
}

}  // namespace

void add_bench_star(CLI::App& bench, Command& chosen) {
  add_star(bench, chosen);
  add_star_server(bench, chosen);
  add_star_worker(bench, chosen);
}

}  // namespace sluice::cli
