// Errors with text, for set-up and control paths. Never on a lane: Error allocates.
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

#include "core/status.h"

namespace sluice {

struct Error {
  Errc code = Errc::kInternal;
  std::string text;  // one line, lower case, says the fact and names the value: "port 7470 is in use"
};

template <typename T>
using Result = tl::expected<T, Error>;

[[nodiscard]] inline tl::unexpected<Error> fail(Errc code, std::string text) {
  return tl::unexpected<Error>(Error{code, std::move(text)});
}

// Context goes in front as the error travels up: "reducer 10.0.0.2:7470: connection refused".
[[nodiscard]] inline tl::unexpected<Error> add_context(std::string context, Error error) {
  error.text = std::move(context) + ": " + error.text;
  return tl::unexpected<Error>(std::move(error));
}

}  // namespace sluice
