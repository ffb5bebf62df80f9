// `sluice bench ...`
#include <fmt/format.h>

#include <memory>

#include "bench/e2e/allreduce_bench.h"
#include "bench/e2e/exit_codes.h"
#include "bench/e2e/launcher.h"
#include "bench/e2e/star_bench.h"
#include "bench/e2e/star_server.h"
#include "bench/e2e/star_worker.h"
#include "bench/micro/reduce_bench.h"
#include "cli/bench_commands.h"
#include "cli/commands.h"
#include "cli/nccl_flags.h"
#include "cli/option_set.h"
#include "cli/worker_flags.h"

namespace sluice::cli {
namespace {

using bench::Failure;

void add_allreduce(CLI::App& bench, Command& chosen, const std::vector<std::string>& arguments) {
  CLI::App* app = bench.add_subcommand("allreduce", "allreduce over reducers, in nccl-tests' words");
  app->footer(
      "Starts reducers and workers here, joins running reducers (--connect), or is one worker of a run on "
      "several hosts:\n"
      "  sluice bench allreduce --connect r0:7470,r1:7470 --session $HEX --workers 4 --rank 0 -b 1M -e 64M "
      "-f 2\n"
      "Exit 2: wrong data, or below --min-bw.");
  struct Flags {
    WorkerFlags worker{4};
    NcclFlags nccl;
  };
  auto flags = std::make_shared<Flags>();
  OptionSet set(*app);
  flags->nccl.add_to(set, *app);
  flags->worker.add_to(set);
  app->callback([flags, &chosen, &arguments] {
    chosen = [flags, &arguments]() -> int {
      bench::AllreduceOptions options = flags->nccl.options();
      if (!flags->worker.is_worker()) {
        bench::LaunchOptions launch = flags->worker.launch(arguments);
        if (launch.deadline == 0) launch.deadline = flags->nccl.timeout();
        return bench::launch(launch);
      }
      options.arguments = arguments;
      return bench::run_allreduce(options, flags->worker.worker());
    };
  });
}

template <typename Name, typename Value>
void parse_names(const std::vector<std::string>& names, Name parse, std::vector<Value>& into,
                 const char* what) {
  for (const std::string& name : names) {
    const auto value = parse(name);
    if (!value) throw Failure(bench::kExitUsage, fmt::format("{} \"{}\" is not known", what, name));
    into.push_back(*value);
  }
}

void add_reduce(CLI::App& bench, Command& chosen) {
  CLI::App* app = bench.add_subcommand(
      "reduce", "the arithmetic alone: GB/s per type and operator, beside loads and memcpy");
  struct Flags {
    bench::ReduceBenchOptions options;
    std::vector<std::string> types;
    std::vector<std::string> ops;
    uint64_t size = 256 * kKiB;
  };
  auto flags = std::make_shared<Flags>();
  OptionSet set(*app);
  set.list("-d,--datatype", flags->types, "types; none: all");
  set.list("-o,--op", flags->ops, "operators; none: all");
  set.list("--targets", flags->options.targets,
           "instruction sets, as sluice --version names them; \"all\"; none: the best one");
  set.size("--size", flags->size, "bytes of each source");
  set.number("--sources", flags->options.sources, "buffers that are summed, 1..256");
  set.duration("--budget", flags->options.budget, "time measured per row, at least");
  set.text("--json", flags->options.json_path, "FILE", "results");
  app->callback([flags, &chosen] {
    chosen = [flags]() -> int {
      bench::ReduceBenchOptions options = flags->options;
      options.bytes = flags->size;
      parse_names(flags->types, wire::parse_dtype, options.types, "datatype");
      parse_names(flags->ops, wire::parse_op, options.ops, "op");
      return bench::run_reduce_bench(options);
    };
  });
}

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
  app->callback([flags, &chosen] {
    chosen = [flags]() -> int {
      bench::StarBenchOptions options = flags->options;
      options.payload_crc = !flags->no_crc;
      return bench::run_star_bench(options);
    };
  });
}

// What `bench star` starts; not for people.
void add_star_parts(CLI::App& bench, Command& chosen) {
  CLI::App* server = bench.add_subcommand("star-server", "")->group("");
  auto server_flags = std::make_shared<bench::StarServerOptions>();
  OptionSet server_set(*server);
  server_set.number("--workers", server_flags->workers, "");
  server_set.size("--chunk", server_flags->chunk_bytes, "");
  server_set.size("--window", server_flags->window_bytes, "");
  server_set.text("--port-file", server_flags->port_file, "FILE", "");
  server->callback(
      [server_flags, &chosen] { chosen = [server_flags] { return bench::run_star_server(*server_flags); }; });

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

void add_bench_commands(CLI::App& program, Command& chosen, const std::vector<std::string>& arguments) {
  CLI::App* bench =
      program.add_subcommand("bench", "measure; nothing is printed that was not checked in the same run");
  bench->require_subcommand(1);
  add_allreduce(*bench, chosen, arguments);
  add_reduce(*bench, chosen);
  add_bench_replay(*bench, chosen, arguments);
  add_star(*bench, chosen);
  add_star_parts(*bench, chosen);
}

}  // namespace sluice::cli
