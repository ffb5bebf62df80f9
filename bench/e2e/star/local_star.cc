#include "bench/e2e/star/local_star.h"

#include "bench/e2e/pool/local_pool.h"
#include "config/sizes.h"
#include "core/clock.h"

namespace sluice::bench {
namespace {

constexpr Nanos kStarStartTimeout = 20 * kSecond;

}  // namespace

Result<LocalStar> start_star(ProcessGroup& processes, Nanos spin) {
  auto directory = TemporaryDirectory::make();
  if (!directory) return tl::unexpected<Error>(directory.error());
  const std::string port_file = directory->path() + "/star";
  const auto child =
      processes.start({.name = "star server",
                       .arguments = {"--log-level", "warn", "bench", "star-server", "--listen", "127.0.0.1:0",
                                     "--spin", config::duration_text(spin), "--port-file", port_file}});
  if (!child) return tl::unexpected<Error>(child.error());
  const auto port = wait_for_port(processes, *child, port_file, monotonic_now() + kStarStartTimeout);
  if (!port) return add_context("cannot start the star server", port.error());
  return LocalStar{.child = *child, .port = *port};
}

}  // namespace sluice::bench
