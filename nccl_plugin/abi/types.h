// NCCL's constants and types, the same in every ABI version. The names are the plugin's, the values NCCL's.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::nccl::abi {

// ncclResult_t
enum Result : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
};

// The values of ncclDebugLogLevel and ncclDebugLogSubSys that the plugin uses.
inline constexpr int kLogWarn = 2;
inline constexpr int kLogInfo = 3;
inline constexpr unsigned long kLogInit = 0x1;
inline constexpr unsigned long kLogNet = 0x10;
using Logger = void (*)(int level, unsigned long flags, const char* file, int line, const char* format, ...);

inline constexpr size_t kHandleBytes = 128;  // NCCL_NET_HANDLE_MAXSIZE since 2.12
inline constexpr int kMaxRequests = 32;      // NCCL_NET_MAX_REQUESTS, per comm
// The device index of CollNet must be less than MAXCHANNELS of the oldest release.
inline constexpr int kMaxDevices = 32;

// ptrSupport and the type of regMr.
inline constexpr int kPointerHost = 1;
inline constexpr int kPointerCuda = 2;
inline constexpr int kPointerDmaBuf = 4;

// ncclDataType_t
enum DataType : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
  kFloat8e4m3 = 10,
  kFloat8e5m2 = 11,
};

// ncclRedOp_t, as a plugin is asked: averages arrive as sums.
enum ReduceOp : int { kSum = 0, kProd = 1, kMax = 2, kMin = 3 };

}  // namespace sluice::nccl::abi
