#include "gpu_client/api/store_options.h"

#include <sys/random.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <span>

#include "config/pool.h"
#include "gpu_client/api/credential_options.h"
#include "gpu_client/api/sized_struct.h"

namespace sluice::api {
namespace {

constexpr size_t kFirstStoreSize = offsetof(sluice_store_options, worker) + sizeof(uint64_t);
constexpr uint32_t kDefaultTimeoutMs = 60'000;

Result<void> fill_random(std::span<std::byte> out) {
  for (size_t have = 0; have < out.size();) {
    const ssize_t n = ::getrandom(out.data() + have, out.size() - have, 0);
    if (n < 0 && errno != EINTR) return fail(Errc::kSystem, "cannot get random bytes from the system");
    if (n > 0) have += static_cast<size_t>(n);
  }
  return {};
}

}  // namespace

sluice_store_options default_store_options() noexcept {
  sluice_store_options options{};
  options.struct_size = sizeof options;
  options.timeout_ms = kDefaultTimeoutMs;
  return options;
}

Result<store_client::StoreOptions> read_store_options(const sluice_store_options& caller_options) {
  SLUICE_ASSIGN_OR_RETURN(
      o, read_sized_struct(caller_options, default_store_options(), kFirstStoreSize, "sluice_store_options"));
  store_client::StoreOptions out;
  const char* const reducers = o.reducers != nullptr ? o.reducers : std::getenv("SLUICE_REDUCERS");
  if (reducers == nullptr || *reducers == '\0')
    return invalid("reducers is NULL; set it or the variable SLUICE_REDUCERS");
  auto pool = config::read_reducers(reducers);
  if (!pool) return add_context("reducers", pool.error());
  if (pool->empty()) return invalid("reducers: \"none\"; models need dedicated reducers");
  out.reducers = std::move(*pool);
  if (o.timeout_ms == 0) return invalid("timeout_ms is 0; expected at least 1");
  out.timeout = Nanos{o.timeout_ms} * kMillisecond;

  engine::Identity& identity = out.identity;
  identity.ranks = 1;
  SLUICE_RETURN_IF_ERROR(engine::read_credentials(credential_options(o), identity));
  SLUICE_RETURN_IF_ERROR(fill_random(std::as_writable_bytes(std::span(identity.session.bytes))));
  out.worker = o.worker;
  while (out.worker == 0)
    SLUICE_RETURN_IF_ERROR(fill_random(std::as_writable_bytes(std::span(&out.worker, 1))));
  return out;
}

}  // namespace sluice::api
