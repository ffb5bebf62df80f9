#include "config/nccl_algorithms.h"

#include <strings.h>

#include <algorithm>
#include <array>
#include <span>
#include <vector>

namespace sluice::config {
namespace {

constexpr std::array<std::string_view, 5> kFunctions = {"Broadcast", "Reduce", "AllGather", "ReduceScatter",
                                                        "AllReduce"};
constexpr std::string_view kAllReduce = kFunctions[4];
constexpr std::array<std::string_view, 7> kAlgorithms = {
    "Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT"};
constexpr std::array<std::string_view, 3> kProtocols = {"LL", "LL128", "Simple"};

bool is_same_name(std::string_view a, std::string_view b) noexcept {
  return a.size() == b.size() && strncasecmp(a.data(), b.data(), a.size()) == 0;
}

bool contains(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::any_of(names, [name](std::string_view n) { return is_same_name(n, name); });
}

// Like strtok: empty fields are skipped.
std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> fields;
  while (!text.empty()) {
    const size_t length = std::min(text.find(separator), text.size());
    if (length > 0) fields.push_back(text.substr(0, length));
    text.remove_prefix(std::min(length + 1, text.size()));
  }
  return fields;
}

// What a variable says about allreduce.
struct Selection {
  std::string error;      // why NCCL rejects the value
  bool is_named = false;  // the value limits allreduce
  bool is_exclusion = false;
  std::vector<std::string_view> names;  // of the last list that applies to allreduce

  [[nodiscard]] bool permits(std::string_view name) const {
    return !is_named || contains(names, name) != is_exclusion;
  }
};

// `known` empty: every name is accepted.
Selection select(std::string_view text, std::span<const std::string_view> known) {
  Selection selection;
  bool is_first = true;
  for (const std::string_view entry : split(text, ';')) {
    const std::vector<std::string_view> parts = split(entry, ':');
    const bool has_function = parts.size() > 1;
    if (parts.empty() || (!has_function && !is_first)) {
      selection.error = "\"" + std::string(entry) + "\" has no function; only the first list may have none";
      return selection;
    }
    is_first = false;
    if (has_function && !contains(kFunctions, parts[0])) {
      selection.error = "unknown function \"" + std::string(parts[0]) + "\"";
      return selection;
    }
    std::string_view list = parts[has_function ? 1 : 0];
    const bool is_exclusion = list.starts_with('^');
    if (is_exclusion) list.remove_prefix(1);
    const std::vector<std::string_view> names = split(list, ',');
    for (const std::string_view name : names) {
      if (!known.empty() && !contains(known, name)) {
        selection.error = "unknown name \"" + std::string(name) + "\"";
        return selection;
      }
    }
    if (has_function && !is_same_name(parts[0], kAllReduce)) continue;
    selection.is_named = !names.empty();
    selection.is_exclusion = is_exclusion;
    selection.names = names;
  }
  return selection;
}

std::string setting(std::string_view variable, std::string_view value) {
  return std::string(variable) + "=" + std::string(value);
}

}  // namespace

std::string collnet_exclusion(const NcclAlgorithms& values) {
  const Selection algo = select(values.algo, kAlgorithms);
  const Selection proto = select(values.proto, kProtocols);
  const Selection sym_kernel = select(values.sym_kernel, {});
  if (!algo.error.empty())
    return setting("NCCL_ALGO", values.algo) + ": " + algo.error + "; NCCL rejects the value";
  if (!proto.error.empty())
    return setting("NCCL_PROTO", values.proto) + ": " + proto.error + "; NCCL rejects the value";
  if (!proto.permits("Simple")) {
    return setting("NCCL_PROTO", values.proto) +
           " excludes Simple, the only protocol of CollNet; add Simple or unset NCCL_PROTO";
  }
  if (!algo.permits("CollNetChain") && !algo.permits("CollNetDirect")) {
    return setting("NCCL_ALGO", values.algo) +
           " excludes CollNet for allreduce; add collnetdirect and collnetchain, or unset NCCL_ALGO";
  }
  if (algo.is_named) return {};
  if (sym_kernel.is_named) {
    return setting("NCCL_SYM_KERNEL", values.sym_kernel) +
           " leaves allreduce no other algorithm in NCCL 2.31 and newer; unset it, or add "
           "\"allreduce:collnetdirect,collnetchain\" to NCCL_ALGO";
  }
  if (proto.is_named && !(values.algo.empty() && values.sym_kernel.empty())) {
    return setting("NCCL_PROTO", values.proto) + " limits allreduce, for which " +
           (values.algo.empty() ? "NCCL_SYM_KERNEL" : "NCCL_ALGO") +
           " names nothing: NCCL 2.31 and newer have no algorithm left; add "
           "\"allreduce:collnetdirect,collnetchain\" to NCCL_ALGO, or unset NCCL_PROTO";
  }
  return {};
}

bool needs_nccl_2_24(const NcclAlgorithms& values) {
  return values.algo.find_first_of(":;") != std::string_view::npos ||
         values.proto.find_first_of(":;") != std::string_view::npos;
}

}  // namespace sluice::config
