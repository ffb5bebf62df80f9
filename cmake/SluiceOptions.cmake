# Options and optional parts. A part is AUTO (built if its dependencies are found; otherwise the configure step reports the
# reason), ON (a missing dependency is an error) or OFF.
include(GNUInstallDirs)

option(SLUICE_TESTS "Build the tests" ON)
option(SLUICE_TESTS_TOGETHER "Compile the sources of tests and tools as unity builds: faster for a full build, slower for an incremental one" OFF)
option(SLUICE_WERROR "Treat warnings as errors" OFF)
option(SLUICE_FUZZ "Build libFuzzer targets (clang only)" OFF)
set(SLUICE_SANITIZE "" CACHE STRING "Sanitizers for all targets: address,undefined or thread")
set(SLUICE_TLS AUTO CACHE STRING "libsluice_tls.so, TLS 1.3 with OpenSSL: AUTO, ON or OFF")
set(SLUICE_RDMA AUTO CACHE STRING "RDMA transport; loads libibverbs at run time: AUTO, ON or OFF")
set(SLUICE_CUDA AUTO CACHE STRING "Operations on GPU streams; loads the CUDA driver at run time: AUTO, ON or OFF")
set(SLUICE_PROMETHEUS AUTO CACHE STRING "/metrics of a reducer with prometheus-cpp: AUTO, ON or OFF")
set(SLUICE_WHEEL AUTO CACHE STRING "Target sluice_wheel, the Python package that contains libsluice: AUTO, ON or OFF")
set(SLUICE_WITH_ISAL AUTO CACHE STRING "Comparison with ISA-L in the CRC-32C benchmark: AUTO, ON or OFF")
set(SLUICE_WITH_BENCHMARK AUTO CACHE STRING "Micro benchmarks with google-benchmark: AUTO, ON or OFF")

set_property(GLOBAL PROPERTY SLUICE_PARTS "")

# sluice_part(<name> <option> <found> <reason if not found>) sets SLUICE_HAVE_<name> in the scope of the caller.
function(sluice_part name option found reason)
  set(have OFF)
  if("${${option}}" STREQUAL "OFF")
    set(line "${name}: off (${option}=OFF)")
  elseif(found)
    set(have ON)
    set(line "${name}: built")
  elseif("${${option}}" STREQUAL "ON")
    message(FATAL_ERROR "${option}=ON, but ${reason}")
  else()
    set(line "${name}: not built, ${reason}")
  endif()
  set_property(GLOBAL APPEND PROPERTY SLUICE_PARTS "${line}")
  set(SLUICE_HAVE_${name} ${have} PARENT_SCOPE)
endfunction()

function(sluice_report_parts)
  message(STATUS "Sluice ${PROJECT_VERSION}, ${CMAKE_BUILD_TYPE}, ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}")
  get_property(parts GLOBAL PROPERTY SLUICE_PARTS)
  foreach(line IN LISTS parts)
    message(STATUS "  ${line}")
  endforeach()
endfunction()

# The packages that several folders use.
find_package(Threads REQUIRED)
find_package(CLI11 REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
