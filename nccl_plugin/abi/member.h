// Types of the members of NCCL's structures, which gain and change members from version to version.
#pragma once

#include <type_traits>

namespace sluice::nccl::abi {

// A member has the type T from version kFirst of its structure on. kIndex tells members apart that appear in
// the same version with the same type.
template <int kFirst, typename T, int kIndex = 0>
struct From {};

// Absent stands for a member in the versions that do not have it yet. It takes no space in a structure, if
// all its absent members have different types, and ignores its value.
template <typename First>
struct Absent {
  constexpr Absent() noexcept = default;
  template <typename Value>
  constexpr Absent(Value) noexcept {}  // NOLINT(google-explicit-constructor): initialized like the member
};

template <int kVersion, typename T, typename... Later>
struct NewestType {
  using Type = T;
};
template <int kVersion, typename Older, int kFirst, typename T, int kIndex, typename... Later>
struct NewestType<kVersion, Older, From<kFirst, T, kIndex>, Later...>
    : NewestType<kVersion, std::conditional_t<(kVersion >= kFirst), std::decay_t<T>, Older>, Later...> {};

// The type of a member in version kVersion: the newest of its types, in ascending order, that this version
// has. A function type means a pointer to the function.
template <int kVersion, typename First, typename... Later>
using Member = typename NewestType<kVersion, Absent<First>, First, Later...>::Type;

}  // namespace sluice::nccl::abi
