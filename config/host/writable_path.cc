#include "config/host/writable_path.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "config/output_file.h"

namespace sluice::config {
namespace {

// systemd sets these variables for StateDirectory= and LogsDirectory= (systemd.exec(5)).
std::string service_folders() {
  std::string out;
  for (const char* const variable : {"STATE_DIRECTORY", "LOGS_DIRECTORY"}) {
    const char* const value = std::getenv(variable);
    if (value != nullptr && *value != '\0') out += (out.empty() ? "" : " and ") + std::string(value);
  }
  return out.empty() ? out : "; systemd lets this service write to " + out;
}

// errno; 0: allowed.
int access_error(const std::string& path, int mode) {
  return ::faccessat(AT_FDCWD, path.c_str(), mode, AT_EACCESS) == 0 ? 0 : errno;
}

tl::unexpected<Error> not_writable(const std::filesystem::path& path, int error) {
  return fail(Errc::kSystem, "cannot write to " + path.string() + ": " + std::strerror(error) +
                                 (error == ENOENT || error == ENOTDIR ? "" : service_folders()));
}

std::filesystem::path parent_of(const std::filesystem::path& path) {
  const std::filesystem::path folder = path.parent_path();
  return folder.empty() ? "." : folder;
}

}  // namespace

Result<void> check_replaceable_file(const std::string& path) {
  std::error_code unknown;
  const auto status = std::filesystem::symlink_status(path, unknown);
  if (std::filesystem::is_directory(status)) return not_writable(path, EISDIR);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    return fail(Errc::kSystem, "cannot write to " + path + ": not a regular file");
  const std::filesystem::path folder = parent_of(path);
  if (const int e = access_error(folder.string() + "/", W_OK | X_OK); e != 0) return not_writable(folder, e);
  return {};
}

Result<void> check_output_file(const std::string& path) {
  const std::string file = follow_links(path);
  std::error_code unknown;
  if (std::filesystem::is_directory(file, unknown)) return not_writable(path, EISDIR);
  const int error = access_error(file, W_OK);
  if (error == 0) return {};  // at least in place
  const bool is_replaced = error == ENOENT || std::filesystem::is_regular_file(file, unknown);
  return is_replaced ? check_replaceable_file(file) : not_writable(path, error);
}

Result<void> check_writable_folder(const std::string& path) {
  std::filesystem::path folder = path;
  for (;; folder = parent_of(folder)) {
    // The slash makes a file that is no folder an error.
    const int error = access_error(folder.string() + "/", W_OK | X_OK);
    if (error == 0) return {};
    if (error != ENOENT || folder == parent_of(folder)) return not_writable(folder, error);
  }
}

}  // namespace sluice::config
