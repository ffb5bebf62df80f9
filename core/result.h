// Errors with text, for setup and control paths. Lanes must not use them, because Error allocates.
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

#include "core/status.h"

namespace sluice {

struct Error {
  Errc code = Errc::kInternal;
  std::string text;  // one line, lower case, with the fact and its value: "port 7470 is in use"
};

template <typename T>
using Result = tl::expected<T, Error>;

[[nodiscard]] inline tl::unexpected<Error> fail(Errc code, std::string text) {
  return tl::unexpected<Error>(Error{code, std::move(text)});
}

// The most frequent error: a value from a user, a file or a platform is not valid.
[[nodiscard]] inline tl::unexpected<Error> invalid(std::string text) {
  return fail(Errc::kInvalidArgument, std::move(text));
}

// Adds context in front while the error is passed up: "reducer 10.0.0.2:7470: connection refused".
[[nodiscard]] inline tl::unexpected<Error> add_context(std::string context, Error error) {
  error.text = std::move(context) + ": " + error.text;
  return tl::unexpected<Error>(std::move(error));
}

}  // namespace sluice

// Return the error of `expression`, a Result, from the calling function, if it has one. The second form
// otherwise declares `name` as the result's value.
#define SLUICE_RETURN_IF_ERROR(expression)                      \
  do {                                                          \
    if (auto checked_result = (expression); !checked_result)    \
      return tl::unexpected(std::move(checked_result).error()); \
  } while (false)
#define SLUICE_ASSIGN_OR_RETURN(name, expression)                              \
  auto name##_result = (expression);                                           \
  if (!name##_result) return tl::unexpected(std::move(name##_result).error()); \
  auto& name = *name##_result  // NOLINT(bugprone-macro-parentheses): a declaration
