// Struct Created holds what sluice_session_create returned, for tests of the C API.
#pragma once

#include <sluice/sluice.h>

#include <array>
#include <string>

namespace sluice::test {

struct Created {
  sluice_status status = SLUICE_INTERNAL;
  sluice_session* session = nullptr;
  std::string error;
};

inline Created create_session(const sluice_options& options) {
  Created c;
  std::array<char, 2048> text{};
  c.status = sluice_session_create(&options, &c.session, text.data(), text.size());
  c.error = text.data();
  return c;
}

inline std::string reason_of(sluice_session* session) {
  std::array<char, 2048> text{};
  static_cast<void>(sluice_session_error(session, text.data(), text.size()));
  return text.data();
}

}  // namespace sluice::test
