// Types and constants of NCCL's plugin interface. The player must not share the declarations of the plugin,
// because an error in them would not be found.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace player {

// From: a member of a structure has the type T from this version on. kIndex tells members apart that come
// with the same version and type. Absent: the member in earlier versions; it takes no space.
template <int kFirst, typename T, int kIndex = 0>
struct From {};
template <typename First>
struct Absent {};

template <int kAbi, typename T, typename... Later>
struct NewestType {
  using Type = T;
};
template <int kAbi, typename Older, int kFirst, typename T, int kIndex, typename... Later>
struct NewestType<kAbi, Older, From<kFirst, T, kIndex>, Later...>
    : NewestType<kAbi, std::conditional_t<(kAbi >= kFirst), std::decay_t<T>, Older>, Later...> {};
// The type of a member in version kAbi. The types are in ascending order; a function type means a pointer.
template <int kAbi, typename First, typename... Later>
using Member = typename NewestType<kAbi, Absent<First>, First, Later...>::Type;

using Result = int;
inline constexpr Result kSuccess = 0;

inline constexpr size_t kHandleBytes = 128;
inline constexpr int kPointerHost = 1;
inline constexpr int kNetRequests = 32;  // maximum of open requests per point-to-point comm
inline constexpr int kSteps = 8;         // steps per channel buffer
inline constexpr int kGroupChannels = 8;
// From NCCL 2.24 on, *request may have this value on entry of irecv: a hint, not a request.
inline constexpr uintptr_t kOptionalCompletion = 1;

enum DataType : int {
  kInt8,
  kUint8,
  kInt32,
  kUint32,
  kInt64,
  kUint64,
  kFloat16,
  kFloat32,
  kFloat64,
  kBfloat16,
  kFloat8e4m3,
  kFloat8e5m2
};
inline constexpr int kDataTypes = 12;
enum ReduceOp : int { kSum, kProd, kMax, kMin };
inline constexpr int kReduceOps = 4;

constexpr size_t size_of(DataType type) {
  constexpr size_t kSizes[kDataTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return kSizes[type];
}
constexpr const char* name_of(DataType type) {
  constexpr const char* kNames[kDataTypes] = {"int8",    "uint8",    "int32",      "uint32",
                                              "int64",   "uint64",   "float16",    "float32",
                                              "float64", "bfloat16", "float8e4m3", "float8e5m2"};
  return kNames[type];
}
constexpr const char* name_of(ReduceOp op) {
  constexpr const char* kNames[kReduceOps] = {"sum", "prod", "max", "min"};
  return kNames[op];
}

enum Function : int { kBroadcast, kReduce, kAllGather, kReduceScatter, kAllReduce };
enum Algorithm : int { kTree, kRing, kCollNetDirect, kCollNetChain, kNvls, kNvlsTree, kPat };
inline constexpr int kAlgorithms = 7;
enum Protocol : int { kLowLatency, kLowLatency128, kSimple };
inline constexpr int kProtocols = 3;

inline constexpr int kLogWarn = 2;
inline constexpr int kLogInfo = 3;
using Logger = void (*)(int level, unsigned long flags, const char* file, int line, const char* format, ...);

}  // namespace player
