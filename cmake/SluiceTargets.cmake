# Programs go to bin/, shared libraries to lib/. Static libraries, tests and micro benchmarks stay in their build folders.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")

# All flags are properties of targets. There are no global flags and no -march.
add_library(sluice_build_flags INTERFACE)
target_compile_features(sluice_build_flags INTERFACE cxx_std_20)
target_compile_options(sluice_build_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor -Woverloaded-virtual
  # Sources of a unity build have absolute paths. Neither programs nor a compiler cache depend on the folder of the tree.
  "-ffile-prefix-map=${PROJECT_SOURCE_DIR}/="
  # No contraction and no reassociation, because the bits of a sum are part of the contract.
  -ffp-contract=off
  # The defaults collect garbage often: a tenth of the time of a large translation unit.
  $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-expand=200> $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=524288>
  # g++ 12 warns about operator+ of std::string ("x" + std::to_string(n)): GCC PR 105651, fixed in 13.
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>
  $<$<BOOL:${SLUICE_WERROR}>:-Werror>)
if(SLUICE_SANITIZE)
  target_compile_options(sluice_build_flags INTERFACE -fsanitize=${SLUICE_SANITIZE} -fno-omit-frame-pointer)
  if(SLUICE_SANITIZE_LINES AND NOT SLUICE_FUZZ)
    target_compile_options(sluice_build_flags INTERFACE -g1)  # a quarter of the compile time
  endif()
  if(SLUICE_SANITIZE MATCHES "undefined")
    set(is_test "$<PATH:IS_PREFIX,${PROJECT_SOURCE_DIR}/tests,$<TARGET_PROPERTY:SOURCE_DIR>>")
    target_compile_options(sluice_build_flags INTERFACE -fno-sanitize-recover=undefined
      # These checks take half of the compile time in code with many library templates. A null dereference is
      # still detected. Code that handles payloads is not cold and keeps them.
      $<$<OR:$<BOOL:$<TARGET_PROPERTY:SLUICE_COLD>>,${is_test}>:-fno-sanitize=null,vptr,object-size,alignment>
      # Clang only. NCCL and its plugins declare the types of their functions separately. A C caller may store any
      # value in an enum.
      $<$<CXX_COMPILER_ID:Clang>:-fno-sanitize=function$<$<BOOL:$<TARGET_PROPERTY:SLUICE_C_API>>:$<COMMA>enum>>
      $<${is_test}:-g0>)
  endif()
  if(SLUICE_SANITIZE STREQUAL "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(sluice_build_flags INTERFACE -Wno-tsan)  # Asio uses fences, but does not rely on them alone
  endif()
  target_link_options(sluice_build_flags INTERFACE -fsanitize=${SLUICE_SANITIZE})
  # lld links programs of 70 MB in a quarter of the time of the default linker.
  include(CheckLinkerFlag)
  check_linker_flag(CXX -fuse-ld=lld SLUICE_HAS_LLD)
  if(SLUICE_HAS_LLD)
    target_link_options(sluice_build_flags INTERFACE -fuse-ld=lld)
  endif()
endif()
if(SLUICE_FUZZ)
  target_compile_options(sluice_build_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# The presets release, asan-ubsan and tsan are unity builds (CMAKE_UNITY_BUILD): headers take most of the compile time, and a full build takes
# a third of it. The preset dev is none, because an incremental unity build takes longer.
set(CMAKE_UNITY_BUILD_BATCH_SIZE 40)

# CMake's default is -O3, which compiles a sixth longer than -O2. Only loops over elements gain by it: sluice_loops().
if(CMAKE_CXX_FLAGS_RELEASE STREQUAL "-O3 -DNDEBUG")
  set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
endif()

# Options for code that need not be fast: -O1 halves the compile time, and so does -O0 with sanitizers. (The preset of the
# address sanitizer uses -O0 everywhere.)
set(SLUICE_COLD_OPTIONS $<$<CONFIG:Release>:-O1>)
if(SLUICE_SANITIZE)
  set(SLUICE_COLD_OPTIONS -O0)
endif()

# sluice_cold(<target>): compiles the target with few optimizations, because it need not be fast.
function(sluice_cold target)
  target_compile_options(${target} PRIVATE ${SLUICE_COLD_OPTIONS})
  set_target_properties(${target} PROPERTIES SLUICE_COLD ON)
  get_target_property(headers ${target} PRECOMPILE_HEADERS_REUSE_FROM)
  if(headers)
    target_precompile_headers(${target} REUSE_FROM sluice_cold_headers)
  endif()
endfunction()

# sluice_loops(<sources>...): optimizes loops over elements, with sanitizers too, whose deadlines they would exceed. The sources are no part of
# a unity build.
function(sluice_loops)
  set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_OPTIONS $<$<CONFIG:Release>:-O3> $<$<CONFIG:RelWithDebInfo>:-O1>)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)  # made with other optimization flags
endfunction()

# sluice_not_cold(<target>): compiles the target with -O1, because loops over elements without optimization exceed test
# deadlines.
function(sluice_not_cold target)
  get_target_property(options ${target} COMPILE_OPTIONS)
  if(SLUICE_SANITIZE OR (CMAKE_BUILD_TYPE MATCHES "^Rel" AND "-O0" IN_LIST options))
    target_compile_options(${target} PRIVATE -O1)
    set_target_properties(${target} PROPERTIES DISABLE_PRECOMPILE_HEADERS ON)  # the precompiled headers use other optimization flags
  endif()
endfunction()

# sluice_compile_apart(sources...): excludes the sources from unity builds, because they define a name that another source of
# the target also defines.
function(sluice_compile_apart)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# In unity builds, the rooms of each kind share precompiled headers of the C++ library: without them, a tenth of the compile time.
# tests/lint compiles every header of this tree without them.
function(sluice_precompiled_headers name)
  file(CONFIGURE OUTPUT headers.cc CONTENT "")
  sluice_room(${name} SOURCES "${CMAKE_CURRENT_BINARY_DIR}/headers.cc")
  target_precompile_headers(sluice_${name} PRIVATE
    <algorithm> <array> <atomic> <chrono> <condition_variable> <cstring> <deque> <functional> <map> <memory> <mutex> <optional> <set> <span> <string>
    <string_view> <thread> <utility> <vector>)
endfunction()

# sluice_room(<name> SOURCES ... [PUBLIC libs...] [PRIVATE libs...]): adds a static library with the alias sluice::<name>.
function(sluice_room name)
  cmake_parse_arguments(ARG "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(sluice_${name} STATIC ${ARG_SOURCES})
  add_library(sluice::${name} ALIAS sluice_${name})
  target_include_directories(sluice_${name} PUBLIC "${PROJECT_SOURCE_DIR}")
  set_target_properties(sluice_${name} PROPERTIES
    POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_link_libraries(sluice_${name} PUBLIC sluice_build_flags ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
  if(CMAKE_UNITY_BUILD AND NOT name MATCHES "headers$")
    target_precompile_headers(sluice_${name} REUSE_FROM sluice_headers)
  endif()
endfunction()

# sluice_embed_text(<variable> <namespace> <name> <file>): appends a generated source to the list <variable>. The source defines
# `extern const std::string_view <name>` with the text of the file.
function(sluice_embed_text variable namespace name file)
  set(out "${CMAKE_CURRENT_BINARY_DIR}/${name}.cc")
  set(script "${PROJECT_SOURCE_DIR}/cmake/EmbedText.cmake")
  add_custom_command(OUTPUT "${out}"
    COMMAND "${CMAKE_COMMAND}" -D "TEXT=${file}" -D "NAMESPACE=${namespace}" -D "NAME=${name}" -D "OUT=${out}" -P "${script}"
    DEPENDS "${file}" "${script}"
    VERBATIM)
  set(${variable} ${${variable}} "${out}" PARENT_SCOPE)
endfunction()

# sluice_static_runtime(<target>): links the C++ library statically, so that the program or shared library runs on every distribution
# with glibc 2.34. Sanitizers need the shared libraries.
function(sluice_static_runtime target)
  if(SLUICE_SANITIZE)
    return()
  endif()
  set(source "${PROJECT_SOURCE_DIR}/core/glibc_2_34.cc")
  sluice_compile_apart("${source}")
  target_sources(${target} PRIVATE "${source}")
  target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc)
  # Without the path of this build, so that the bytes do not depend on it.
  set_target_properties(${target} PROPERTIES CXX_VISIBILITY_PRESET hidden SKIP_BUILD_RPATH ON)
endfunction()

# sluice_closed_module(<target> <map>): a module that foreign processes load. It exports only the symbols in the map. It links
# the C++ library statically, because it must not interact with the C++ library of the process. It is never unloaded, because
# threads or other modules may hold addresses in it.
function(sluice_closed_module target map)
  set_target_properties(${target} PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib" CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    LINK_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${map}")
  target_link_options(${target} PRIVATE
    "LINKER:--version-script=${CMAKE_CURRENT_SOURCE_DIR}/${map}" "LINKER:--exclude-libs,ALL" "LINKER:-z,nodelete" "LINKER:-z,now")
  sluice_static_runtime(${target})
  if(NOT SLUICE_SANITIZE)
    target_link_options(${target} PRIVATE "LINKER:--no-undefined")
  endif()
endfunction()

# Call it in a folder whose targets the short run of test.sh does not need.
macro(sluice_long_folder)
  if(NOT SLUICE_LONG_TESTS)
    set_property(DIRECTORY PROPERTY EXCLUDE_FROM_ALL ON)
  endif()
endmacro()

if(CMAKE_UNITY_BUILD)
  sluice_precompiled_headers(headers)
  sluice_precompiled_headers(cold_headers)
  sluice_cold(sluice_cold_headers)
endif()
