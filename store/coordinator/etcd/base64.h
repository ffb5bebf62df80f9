// Base64 with padding (RFC 4648 section 4), as JSON writes bytes in etcd's API.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sluice::store::etcd {

[[nodiscard]] std::string base64_of(std::string_view bytes);
// Nothing unless `text` is exactly what base64_of() returns for some bytes.
[[nodiscard]] std::optional<std::string> from_base64(std::string_view text);

}  // namespace sluice::store::etcd
