# Toolchain file to build for 64-bit Arm on Debian. It uses g++-aarch64-linux-gnu, the libraries in SLUICE_ARM64_ROOT
# (scripts/arm64_libraries.sh), and qemu-user to run the programs.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

set(SLUICE_ARM64_ROOT "" CACHE PATH "Folder with the arm64 libraries that scripts/arm64_libraries.sh creates")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES SLUICE_ARM64_ROOT)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH "${SLUICE_ARM64_ROOT}" /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
# The linker must also find indirect dependencies of these libraries.
set(CMAKE_EXE_LINKER_FLAGS_INIT "-Wl,-rpath-link,\"${SLUICE_ARM64_ROOT}/usr/lib/aarch64-linux-gnu\"")
set(CMAKE_SHARED_LINKER_FLAGS_INIT "${CMAKE_EXE_LINKER_FLAGS_INIT}")

find_program(SLUICE_QEMU NAMES qemu-aarch64-static qemu-aarch64)
if(SLUICE_QEMU)
  set(CMAKE_CROSSCOMPILING_EMULATOR
      "${SLUICE_QEMU};-L;/usr/aarch64-linux-gnu;-E;LD_LIBRARY_PATH=${SLUICE_ARM64_ROOT}/usr/lib/aarch64-linux-gnu:/usr/aarch64-linux-gnu/lib")
endif()
