// kernels.cu as nvcc has compiled it: a fat binary, made by the build.
#pragma once

namespace sluice::cuda {

extern const unsigned char* const kKernelImage;
extern const int kKernelCompiler;  // nvcc's version as the driver counts: 13000 for 13.0

}  // namespace sluice::cuda
