#include "gpu_client/api/store_options.h"

#include <sys/random.h>

#include <cerrno>
#include <cstdlib>
#include <span>
#include <string>

#include "config/pool.h"
#include "gpu_client/api/sized_struct.h"
#include "gpu_client/engine/join/credentials.h"
#include "wire/message_limits.h"

namespace sluice::api {
namespace {

constexpr size_t kFirstStoreSize = sizeof(sluice_store_options);
constexpr uint32_t kDefaultTimeoutMs = 60'000;

std::string text_or_variable(const char* text, const char* variable) {
  if (text == nullptr) text = std::getenv(variable);
  return text != nullptr ? text : "";
}

Result<void> fill_random(std::span<std::byte> out) {
  for (size_t have = 0; have < out.size();) {
    const ssize_t n = ::getrandom(out.data() + have, out.size() - have, 0);
    if (n < 0 && errno != EINTR) return fail(Errc::kSystem, "cannot get random bytes from the system");
    if (n > 0) have += static_cast<size_t>(n);
  }
  return {};
}

// A file that the caller names replaces both variables.
Result<std::optional<wire::Digest>> read_token(const sluice_store_options& o, const std::string& job) {
  if (o.key_file != nullptr || o.token_file != nullptr) {
    return engine::load_token(o.key_file != nullptr ? o.key_file : "",
                              o.token_file != nullptr ? o.token_file : "", job);
  }
  return engine::load_token(text_or_variable(nullptr, "SLUICE_KEY_FILE"),
                            text_or_variable(nullptr, "SLUICE_TOKEN_FILE"), job);
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
  const std::string reducers = text_or_variable(o.reducers, "SLUICE_REDUCERS");
  if (reducers.empty()) return invalid("reducers is NULL; set it or the variable SLUICE_REDUCERS");
  auto pool = config::read_reducers(reducers);
  if (!pool) return add_context("reducers", pool.error());
  if (pool->empty()) return invalid("reducers: \"none\"; models need dedicated reducers");
  out.reducers = std::move(*pool);
  if (o.timeout_ms == 0) return invalid("timeout_ms is 0; expected at least 1");
  out.timeout = Nanos{o.timeout_ms} * kMillisecond;

  engine::Identity& identity = out.identity;
  identity.ranks = 1;
  if (std::string job = text_or_variable(o.job, "SLUICE_JOB"); !job.empty()) identity.job = std::move(job);
  identity.tenant = o.tenant != nullptr ? o.tenant : "";
  for (const auto& [name, text] : {std::pair("job", identity.job), std::pair("tenant", identity.tenant)}) {
    if (text.size() > wire::kMaxJobText)
      return invalid(std::string(name) + " has " + std::to_string(text.size()) +
                     " characters; the limit is " + std::to_string(wire::kMaxJobText));
  }
  SLUICE_ASSIGN_OR_RETURN(token, read_token(o, identity.job));
  identity.token = token;
  SLUICE_ASSIGN_OR_RETURN(tls, engine::read_tls_settings());
  identity.tls = std::move(tls);
  SLUICE_RETURN_IF_ERROR(fill_random(std::as_writable_bytes(std::span(identity.session.bytes))));
  out.worker = o.worker;
  while (out.worker == 0)
    SLUICE_RETURN_IF_ERROR(fill_random(std::as_writable_bytes(std::span(&out.worker, 1))));
  return out;
}

}  // namespace sluice::api
