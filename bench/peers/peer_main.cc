#include "bench/peers/peer_main.h"

#include <cstdio>
#include <exception>

#include "bench/e2e/process/exit_codes.h"
#include "bench/peers/peer_bench.h"
#include "bench/peers/peer_options.h"
#include "bench/peers/peer_report.h"

namespace sluice::bench {
namespace {

int run(Peer& peer, const PeerOptions& options) {
  PeerBench bench(peer, options);
  PeerReport report(peer, options);
  const bool is_rank_zero = peer.rank() == 0;
  for (const uint64_t bytes : options.bytes) {
    const SizeResult result = bench.measure(bytes);
    if (is_rank_zero) report.add(result);
  }
  if (options.trace) {
    const TraceResult result = bench.replay(*options.trace);
    if (is_rank_zero) report.add(result, *options.trace);
  }
  const int code = is_rank_zero ? report.finish() : kExitOk;
  peer.shut_down(code);
  return code;
}

}  // namespace

int peer_main(int argc, char** argv, CLI::App& app, const std::function<std::unique_ptr<Peer>()>& join) {
  PeerFlags flags;
  flags.add_to(app);
  try {
    app.parse(argc, argv);
    const PeerOptions options = flags.options();
    return run(*join(), options);
  } catch (const CLI::Success& e) {  // --help
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    std::fprintf(stderr, "%s: %s (see --help)\n", app.get_name().c_str(), e.what());
    return kExitUsage;
  } catch (const Failure& e) {
    std::fprintf(stderr, "%s: %s\n", app.get_name().c_str(), e.what());
    return e.code();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s: %s\n", app.get_name().c_str(), e.what());
    return kExitFailure;
  }
}

}  // namespace sluice::bench
