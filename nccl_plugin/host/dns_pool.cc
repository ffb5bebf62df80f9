#include "nccl_plugin/host/dns_pool.h"

#include <unistd.h>

#include <mutex>
#include <utility>

#include "config/discovery/discover.h"
#include "nccl_plugin/host/log.h"

namespace sluice::nccl {
namespace {

Result<std::vector<config::Endpoint>> resolve() {
  info("resolving the reducers by DNS (SLUICE_REDUCER_SERVICE)");
  const auto environment = config::discovery::process_environment(environ);
  auto outcome = config::discovery::discover(environment, "kubernetes");
  if (!outcome) return tl::unexpected(outcome.error());
  if (!outcome->result) return fail(Errc::kInvalidArgument, "SLUICE_REDUCER_SERVICE is no longer set");
  return std::move(outcome->result->reducers);
}

}  // namespace

Result<std::vector<config::Endpoint>> resolve_dns_pool() {
  static std::mutex mutex;
  static std::vector<config::Endpoint> known;
  const std::lock_guard lock(mutex);
  if (!known.empty()) return known;
  auto pool = resolve();
  if (pool) known = *pool;
  return pool;
}

}  // namespace sluice::nccl
