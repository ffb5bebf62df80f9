# usage: cmake -DIMAGE=kernels.fatbin -DSOURCE=kernel_image.cc -DVERSION=13.0.88 -P kernel_image.cmake
# Writes the fat binary as a C++ source of 64-bit words. They compile eight times as fast as bytes.
file(READ "${IMAGE}" digits HEX)
string(LENGTH "${digits}" length)
math(EXPR odd "${length} % 16")
if(odd)
  math(EXPR missing "16 - ${odd}")
  string(REPEAT "0" ${missing} zeros)
  string(APPEND digits "${zeros}")
endif()
string(REGEX REPLACE "(..)(..)(..)(..)(..)(..)(..)(..)" "0x\\8\\7\\6\\5\\4\\3\\2\\1,\n" words "${digits}")
string(REGEX MATCH "^([0-9]+)\\.([0-9]+)" version "${VERSION}")
math(EXPR version "${CMAKE_MATCH_1} * 1000 + ${CMAKE_MATCH_2} * 10")
file(WRITE "${SOURCE}" "#include \"gpu_client/cuda/kernel_image.h\"

#include <cstdint>

namespace sluice::cuda {
namespace {
alignas(64) constexpr uint64_t kWords[] = {
${words}};
}  // namespace
const unsigned char* const kKernelImage = reinterpret_cast<const unsigned char*>(kWords);
const int kKernelCompiler = ${version};
}  // namespace sluice::cuda
")
