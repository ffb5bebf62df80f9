# Options and optional parts. A part is AUTO (built when what it needs is there, otherwise its absence is said at the end
# of configure), ON (missing is an error) or OFF.
include(GNUInstallDirs)

option(SLUICE_TESTS "Build the tests" ON)
option(SLUICE_TESTS_TOGETHER "Compile several sources of a test or a tool at a time: faster from nothing, slower after a change" OFF)
option(SLUICE_WERROR "Treat warnings as errors" OFF)
option(SLUICE_FUZZ "Build libFuzzer targets (clang only)" OFF)
set(SLUICE_SANITIZE "" CACHE STRING "Sanitizers of the whole build: address,undefined or thread")
set(SLUICE_TLS AUTO CACHE STRING "libsluice_tls.so, TLS 1.3 by OpenSSL: AUTO, ON or OFF")
set(SLUICE_RDMA AUTO CACHE STRING "Frames over queue pairs, by libibverbs where that is loaded: AUTO, ON or OFF")
set(SLUICE_CUDA AUTO CACHE STRING "Streams of GPUs, by the CUDA driver where that is loaded: AUTO, ON or OFF")
set(SLUICE_WHEEL AUTO CACHE STRING "sluice_wheel, the Python package with libsluice in it: AUTO, ON or OFF")
set(SLUICE_WITH_ISAL AUTO CACHE STRING "ISA-L as a second opinion in the CRC32C benchmark: AUTO, ON or OFF")
set(SLUICE_WITH_BENCHMARK AUTO CACHE STRING "google-benchmark micro benchmarks: AUTO, ON or OFF")

set_property(GLOBAL PROPERTY SLUICE_PARTS "")

# sluice_part(<name> <option> <found> <reason when missing>) sets SLUICE_HAVE_<name> in the caller.
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

find_package(Threads REQUIRED)
