#include "reducer/security/key_store.h"

#include <span>

#include "core/log.h"
#include "wire/handshake.h"

namespace sluice::reducer {

Result<KeyStore> KeyStore::load(const std::string& path) {
  const auto file = config::read_secret_file(path);
  if (!file) return add_context("key file", file.error());
  if (!file->warning.empty()) log::warn(file->warning);
  KeyStore store;
  store.key_ = file->secret;
  return store;
}

wire::Digest KeyStore::token_for(const std::string& job) const {
  return wire::job_token(std::as_bytes(std::span(*key_)), job);
}

}  // namespace sluice::reducer
