// Finds the NCCL libraries that a job on this host could load, for `sluice check plugin`.
#pragma once

#include <string>
#include <vector>

namespace sluice::cli {

struct NcclLibrary {
  std::string path;
  int release = 0;    // as in config/nccl_releases.h
  std::string error;  // with the path: why the release is not known
};

// Returns the library of the dynamic linker, then those of Python packages (PyTorch's wheel brings one), each
// once. `file` not empty: only this file. Loads the libraries, which needs no GPU.
[[nodiscard]] std::vector<NcclLibrary> find_nccl_libraries(const std::string& file);

// Prints each library with its release, and what its user has to know and to set.
void print_nccl_libraries(const std::vector<NcclLibrary>& libraries);

// Prints a warning for each other network plugin of this host, which NCCL_NET_PLUGIN=sluice replaces
// (docs/guides/network-plugins.md). `own_path`: the plugin under test.
void warn_about_other_plugins(const std::string& own_path);

}  // namespace sluice::cli
