#include "bench/e2e/process/port_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

namespace sluice::bench {

Result<void> write_port_file(const std::string& path, uint16_t port) {
  const std::string temporary = fmt::format("{}.{}", path, getpid());
  std::ofstream file(temporary);
  file << port << '\n';
  file.close();
  if (!file || std::rename(temporary.c_str(), path.c_str()) != 0) {
    return fail(Errc::kSystem, fmt::format("cannot write port file {}: {}", path, std::strerror(errno)));
  }
  return {};
}

}  // namespace sluice::bench
