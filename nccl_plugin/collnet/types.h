// Converts NCCL's data types and operators to those of the protocol.
#pragma once

#include <optional>

#include "nccl_plugin/abi/types.h"
#include "wire/dtype.h"

namespace sluice::nccl::collnet {

[[nodiscard]] constexpr std::optional<wire::DType> dtype_of(int data_type) noexcept {
  switch (data_type) {
    case abi::kInt8: return wire::DType::kI8;
    case abi::kUint8: return wire::DType::kU8;
    case abi::kInt32: return wire::DType::kI32;
    case abi::kUint32: return wire::DType::kU32;
    case abi::kInt64: return wire::DType::kI64;
    case abi::kUint64: return wire::DType::kU64;
    case abi::kFloat16: return wire::DType::kF16;
    case abi::kFloat32: return wire::DType::kF32;
    case abi::kFloat64: return wire::DType::kF64;
    case abi::kBfloat16: return wire::DType::kBf16;
    case abi::kFloat8e4m3: return wire::DType::kF8e4m3;
    case abi::kFloat8e5m2: return wire::DType::kF8e5m2;
    default: return std::nullopt;
  }
}

// NCCL never requests averages: it scales on the GPU and requests sums.
[[nodiscard]] constexpr std::optional<wire::Op> op_of(int op) noexcept {
  switch (op) {
    case abi::kSum: return wire::Op::kSum;
    case abi::kProd: return wire::Op::kProd;
    case abi::kMax: return wire::Op::kMax;
    case abi::kMin: return wire::Op::kMin;
    default: return std::nullopt;
  }
}

}  // namespace sluice::nccl::collnet
