// The fat binary that nvcc compiles from kernels.cu. kernel_image.cmake generates the definitions.
#pragma once

namespace sluice::cuda {

extern const unsigned char* const kKernelImage;
extern const int kKernelCompiler;  // version of nvcc in the driver's format: 13000 is 13.0

}  // namespace sluice::cuda
