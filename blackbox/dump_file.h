// Writes the records of this process's black box to a file: lines of JSON (docs/guides/blackbox.md).
//
// The file is written beside its place and then renamed, so a reader sees the old or the new one, and never
// a part. Nothing is allocated, so that a process that has violated an assertion can still write it. Blocks
// as writes to a local file do.
#pragma once

#include <string_view>

#include "blackbox/event_source.h"

namespace sluice::blackbox {

inline constexpr int kDumpVersion = 1;

struct DumpHeader {
  std::string_view program;
  std::string_view why;
};

// Replaces the file. Returns null, or the reason why there is no new file; an existing one is then unchanged.
// `path` must have room for a suffix of 32 bytes within PATH_MAX. One call at a time for each path.
[[nodiscard]] const char* write_dump(const char* path, const DumpHeader& header,
                                     const ProcessRings& rings) noexcept;

}  // namespace sluice::blackbox
