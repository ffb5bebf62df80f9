#include "bench/e2e/report/output.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "bench/e2e/process/exit_codes.h"
#include "config/output_file.h"

namespace sluice::bench {

void print_flushed(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

void print_result(const std::string& text) {
  if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0)
    throw Failure(kExitFailure, fmt::format("cannot write to stdout: {}", std::strerror(errno)));
}

void write_result_file(const std::string& path, const std::string& text) {
  if (path.empty()) return;
  if (const auto written = config::write_output_file(path, text); !written)
    throw Failure(kExitFailure, written.error().text);
}

}  // namespace sluice::bench
