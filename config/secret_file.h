// Reads pool keys and job tokens from files: 32 bytes written as 64 hex digits and a newline, as written by
// `sluice keygen`. Reducers and workers share this parser, so both derive the same bytes from the same file.
// While a pool changes its key, the file has a second line with the old key.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"

namespace sluice::config {

using Secret = std::array<uint8_t, 32>;

struct SecretFile {
  Secret secret{};                   // the first line
  std::optional<Secret> old_secret;  // the second line; reducers accept it too, clients ignore it
  std::string warning;               // one line when other users can read the file, otherwise empty
};

// Returns kSystem when the file cannot be read, and kInvalidArgument when it contains anything but 64 hex
// digits, once or twice, with white space around them. Error texts name the path and never show file
// contents.
[[nodiscard]] Result<SecretFile> read_secret_file(const std::string& path);

// Returns the contents of such a file, including the newline.
[[nodiscard]] std::string secret_text(const Secret& secret);

}  // namespace sluice::config
