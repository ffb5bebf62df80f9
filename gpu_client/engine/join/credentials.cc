#include "gpu_client/engine/join/credentials.h"

#include <span>

#include "config/secret_file.h"
#include "core/log.h"
#include "wire/handshake.h"

namespace sluice::engine {

Result<std::optional<wire::Digest>> load_token(const std::string& key_file, const std::string& token_file,
                                               const std::string& job) {
  if (key_file.empty() && token_file.empty()) return std::optional<wire::Digest>();
  if (!key_file.empty() && !token_file.empty()) {
    return fail(Errc::kInvalidArgument,
                "key_file and token_file are both set; set only one, the token is derived from the key");
  }
  auto file = config::read_secret_file(key_file.empty() ? token_file : key_file);
  if (!file) return tl::unexpected(file.error());
  // Logged as information: a library must not print, and the default sink prints warnings.
  if (!file->warning.empty()) log::info(file->warning);
  if (key_file.empty()) return std::optional<wire::Digest>(file->secret);
  return std::optional<wire::Digest>(wire::job_token(std::as_bytes(std::span(file->secret)), job));
}

}  // namespace sluice::engine
