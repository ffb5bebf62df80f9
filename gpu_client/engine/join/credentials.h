// The one place that reads what a client proves and trusts: job, tenant, pool key or job token, and TLS
// (docs/guides/secure.md). Every client (libsluice, the NCCL plugin, the tools) passes the options that its
// user has set and gets the rest from the variables, so that they mean the same everywhere.
#pragma once

#include <memory>
#include <string>

#include "core/result.h"
#include "transport/tcp/secure_stream.h"

namespace sluice::engine {

struct Identity;  // handshake.h

// Options that the user has set. nullptr: the variable decides. An empty text switches off what the variable
// sets. The two files of a pair belong together: an option for one of them replaces both variables.
struct CredentialOptions {
  const char* job = nullptr;         // SLUICE_JOB; empty: "default"
  const char* tenant = nullptr;      // SLUICE_TENANT; empty: the job
  const char* key_file = nullptr;    // SLUICE_KEY_FILE; a pair with token_file
  const char* token_file = nullptr;  // SLUICE_TOKEN_FILE
  const char* tls = nullptr;         // SLUICE_TLS: off, on, require; empty: off
  const char* tls_ca = nullptr;      // SLUICE_TLS_CA
  const char* tls_cert = nullptr;    // SLUICE_TLS_CERT; a pair with tls_key
  const char* tls_key = nullptr;     // SLUICE_TLS_KEY
};

// Whether a worker's connections use TLS, and which peers it trusts.
struct TlsSettings {
  bool required = false;  // a reducer that does not offer TLS is an error
  std::string ca{};       // file of the authorities; empty: none
  std::shared_ptr<const transport::tcp::TlsContext> context;
};

// Sets job, tenant, token and tls of `identity`. Errors are kInvalidArgument, kSystem for a file that cannot
// be read, and kUnsupported if TLS is on but its library cannot be loaded, with the option or the variable.
[[nodiscard]] Result<void> read_credentials(const CredentialOptions& options, Identity& identity);

// Reads the TLS options, and loads the TLS library unless TLS is off. Returns null when TLS is off.
[[nodiscard]] Result<std::shared_ptr<const TlsSettings>> read_tls_settings(
    const CredentialOptions& options = {});

}  // namespace sluice::engine
