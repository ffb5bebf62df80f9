// Keys and tokens in files: 32 bytes written as 64 hex digits and a newline (`sluice keygen`). One reader for
// the pool's key and for job tokens, used by reducers and workers alike, so that both take the same bytes
// from the same file.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/result.h"

namespace sluice::config {

using Secret = std::array<uint8_t, 32>;

struct SecretFile {
  Secret secret{};
  std::string warning;  // empty, or one line about who else can read the file
};

// kSystem when the file cannot be read, kInvalidArgument when it holds anything but 64 hex digits and white
// space around them. Error texts name the path and never show what the file holds.
[[nodiscard]] Result<SecretFile> read_secret_file(const std::string& path);

// The text of such a file, its newline included.
[[nodiscard]] std::string secret_text(const Secret& secret);

}  // namespace sluice::config
