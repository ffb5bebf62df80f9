// Decides whether and where this process writes its black box, and writes it. The settings belong to the
// process, like the rings, since all sessions and reducers of a process share one file.
//
// Any thread. Errors are warnings in the log: a black box must not disturb what it records.
#pragma once

#include <string>
#include <string_view>

#include "core/result.h"

namespace sluice::blackbox {

// Names the program in files: "sluice reducer", "libsluice". The first call counts: libsluice inside a
// program does not rename it. `suffix` becomes part of the file's name: a module that is loaded beside
// another one has its own events and needs its own file.
void name_process(std::string_view program, std::string_view suffix = {}) noexcept;

// Where the file goes: an existing folder, or a name in which %h is the host and %p the process
// (dump_path()). Empty or "/dev/null": no file. From now on a violated assertion writes the file too.
void set_dump_path(std::string_view pattern) noexcept;
[[nodiscard]] bool has_dump_path() noexcept;

// Whether a process with this path could write its file now. Error: config::check_replaceable_file().
[[nodiscard]] Result<void> check_dump_path(std::string_view pattern);

// For a library, before it records: names the process, takes the path from SLUICE_BLACKBOX unless the program
// has set one, and hides the events of the parent in a child of fork(). A path that cannot be written is a
// warning now, when there is still time to correct it.
void begin_in_library(std::string_view library) noexcept;

// Writes the file now and returns its path. Without a path it goes to the folder of logs that systemd gives a
// service (LogsDirectory=), since nobody else sees its /tmp, or else to the folder for temporary files.
[[nodiscard]] Result<std::string> write_process_dump(std::string_view why);

// The same, with a line in the log; on request of an operator. Every failure is a warning.
void dump_on_request(std::string_view why) noexcept;
// Writes the file if it has a path. A failure is a warning, unless the previous call failed too.
void dump_after_failure(std::string_view why) noexcept;

// The file of a process for a pattern of set_dump_path(). A folder gets the name blackbox-HOST-PID.jsonl. A
// name without %p gets "-HOST-PID" in front of its extension, because processes must not share a file. The
// suffix of name_process() goes to the same place.
[[nodiscard]] std::string dump_path(std::string_view pattern, std::string_view host, int64_t pid,
                                    std::string_view suffix = {});

}  // namespace sluice::blackbox
