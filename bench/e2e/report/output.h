// Functions that write the results of a command to stdout and to files.
#pragma once

#include <string>

namespace sluice::bench {

// Prints `text` to stdout and flushes, so that the lines of a long run appear immediately.
void print_flushed(const std::string& text);

// Prints `text` to stdout. Throws Failure(kExitFailure) on error, such as a full disk or a closed pipe.
void print_result(const std::string& text);

// Writes `text` to the file `path`; does nothing when `path` is empty. Throws Failure(kExitFailure) on error.
void write_result_file(const std::string& path, const std::string& text);

}  // namespace sluice::bench
