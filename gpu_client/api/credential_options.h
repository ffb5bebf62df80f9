// Function credential_options() takes the credentials out of the option structs of sluice.h and store.h.
#pragma once

#include "gpu_client/engine/join/credentials.h"

namespace sluice::api {

// `Options`: sluice_options or sluice_store_options. The result points to the caller's texts.
template <typename Options>
engine::CredentialOptions credential_options(const Options& o) noexcept {
  return {.job = o.job,
          .tenant = o.tenant,
          .key_file = o.key_file,
          .token_file = o.token_file,
          .tls = o.tls,
          .tls_ca = o.tls_ca,
          .tls_cert = o.tls_cert,
          .tls_key = o.tls_key};
}

}  // namespace sluice::api
