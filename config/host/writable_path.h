// Checks early whether a later write can succeed, because a process that finds out after it has accepted work
// loses that work.
//
// Only permissions and read-only file systems show: a full disk does not. Nothing is created or changed.
#pragma once

#include <string>

#include "core/result.h"

namespace sluice::config {

// Whether a regular file can get this name, in place of one that may have it and of nothing else. Error:
// kSystem, such as "Read-only file system". For a service of systemd the text names the folders that it may
// write to.
[[nodiscard]] Result<void> check_replaceable_file(const std::string& path);

// Whether OutputFile can write the file, which may be a device or a link. Errors as above.
[[nodiscard]] Result<void> check_output_file(const std::string& path);

// Whether files can be created in the folder, or the folder below its nearest existing parent. Errors as
// above.
[[nodiscard]] Result<void> check_writable_folder(const std::string& path);

}  // namespace sluice::config
