// Reads NCCL_ALGO, NCCL_PROTO and NCCL_SYM_KERNEL like NCCL, to find out whether they permit CollNet.
#pragma once

#include <string>
#include <string_view>

namespace sluice::config {

// The values of the variables; an unset variable is empty.
//
// Up to NCCL 2.23 a value is a list, "ring,tree", or a list of what is excluded, "^ring". From 2.24 on,
// further lists may follow for single functions: "ring,tree;allreduce:collnetchain". From 2.31 on, a variable
// that limits allreduce leaves it the algorithms that NCCL_ALGO names, and none if NCCL_ALGO is set for other
// functions only.
struct NcclAlgorithms {
  std::string_view algo;
  std::string_view proto;
  std::string_view sym_kernel;
};

// Returns why allreduce cannot use CollNet with these values, and the remedy; empty if it can. A value that
// NCCL rejects is such a reason.
[[nodiscard]] std::string collnet_exclusion(const NcclAlgorithms& values);

// Returns whether a value has a list for a single function, which NCCL before 2.24 does not understand: it
// finds no algorithm for any function.
[[nodiscard]] bool needs_nccl_2_24(const NcclAlgorithms& values);

}  // namespace sluice::config
