# What one runs is in bin/, what one links is in lib/. Rooms' static libraries, tests and micro benchmarks stay where they are built.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")

# Every flag is a property of a target: nothing global, no -march.
add_library(sluice_build_flags INTERFACE)
target_compile_features(sluice_build_flags INTERFACE cxx_std_20)
target_compile_options(sluice_build_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor -Woverloaded-virtual
  # No contraction and no reassociation: the bits of a sum are promised.
  -ffp-contract=off
  # g++ 12 warns about std::string's own operator+ ("x" + std::to_string(n)): its PR 105651, mended in 13.
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>
  $<$<BOOL:${SLUICE_WERROR}>:-Werror>)
if(SLUICE_SANITIZE)
  target_compile_options(sluice_build_flags INTERFACE -fsanitize=${SLUICE_SANITIZE} -fno-omit-frame-pointer)
  if(SLUICE_SANITIZE MATCHES "undefined")
    set(of_tests "$<PATH:IS_PREFIX,${PROJECT_SOURCE_DIR}/tests,$<TARGET_PROPERTY:SOURCE_DIR>>")
    target_compile_options(sluice_build_flags INTERFACE -fno-sanitize-recover=undefined
      # A third of the compiler's time goes into these where all is calls of libraries' templates; a null that is used is seen all the same.
      $<$<OR:$<BOOL:$<TARGET_PROPERTY:SLUICE_COLD>>,${of_tests}>:-fno-sanitize=null,vptr,object-size>
      # Clang's alone. What NCCL and its plugins call each other by is declared on both sides; and an enum of C's holds what its callers like.
      $<$<CXX_COMPILER_ID:Clang>:-fno-sanitize=function$<$<BOOL:$<TARGET_PROPERTY:SLUICE_C_FACE>>:$<COMMA>enum>>
      $<${of_tests}:-g0>)
  endif()
  if(SLUICE_SANITIZE STREQUAL "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(sluice_build_flags INTERFACE -Wno-tsan)  # Asio's fences, which it does not rely on alone
  endif()
  target_link_options(sluice_build_flags INTERFACE -fsanitize=${SLUICE_SANITIZE})
  # Programs of 70 MB each: it takes a quarter of the other's time.
  include(CheckLinkerFlag)
  check_linker_flag(CXX -fuse-ld=lld SLUICE_HAS_LLD)
  if(SLUICE_HAS_LLD)
    target_link_options(sluice_build_flags INTERFACE -fuse-ld=lld)
  endif()
endif()
if(SLUICE_FUZZ)
  target_compile_options(sluice_build_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# With sanitizers, which nobody rebuilds file by file, most sources of a target are one translation unit: instrumenting what headers
# like CLI11's make takes the compiler longer than all the rest. What ships is tested as it is compiled elsewhere.
set(CMAKE_UNITY_BUILD_BATCH_SIZE 24)
if(SLUICE_SANITIZE)
  set(CMAKE_UNITY_BUILD ON)
endif()

# For what need not be fast: the compiler takes half as long with few optimisations, and so does the instrumented rest with none. (With
# the address sanitizer nothing is: its preset has -O0.)
set(SLUICE_COLD_OPTIONS $<$<CONFIG:Release>:-O1>)
if(SLUICE_SANITIZE)
  set(SLUICE_COLD_OPTIONS -O0)
endif()

# Begins the list of a folder that no rank and no reducer runs, with SLUICE_TESTS_TOGETHER.
macro(sluice_tools_together)
  if(SLUICE_TESTS_TOGETHER)
    set(CMAKE_UNITY_BUILD ON)
  endif()
endmacro()

# sluice_together(<target>): it moves no gradients, so with SLUICE_TESTS_TOGETHER its sources too are compiled several at a time.
function(sluice_together target)
  if(SLUICE_TESTS_TOGETHER)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON)
  endif()
endfunction()

# sluice_cold(<target>): it need not be fast.
function(sluice_cold target)
  sluice_together(${target})
  target_compile_options(${target} PRIVATE ${SLUICE_COLD_OPTIONS})
  set_target_properties(${target} PROPERTIES SLUICE_COLD ON)
endfunction()

# sluice_not_cold(<target>): its own loops over elements are most of what it does. Without optimisation they outlast deadlines.
function(sluice_not_cold target)
  get_target_property(options ${target} COMPILE_OPTIONS)
  if(SLUICE_SANITIZE OR (CMAKE_BUILD_TYPE MATCHES "^Rel" AND "-O0" IN_LIST options))
    target_compile_options(${target} PRIVATE -O1)
    set_target_properties(${target} PROPERTIES DISABLE_PRECOMPILE_HEADERS ON)  # those are of the others' optimisation
  endif()
endfunction()

# sluice_compile_apart(sources...): they define a name that another source of their target defines too.
function(sluice_compile_apart)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# sluice_room(<name> SOURCES ... [PUBLIC libs...] [PRIVATE libs...]): one static library per room, alias sluice::<name>.
function(sluice_room name)
  cmake_parse_arguments(ARG "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(sluice_${name} STATIC ${ARG_SOURCES})
  add_library(sluice::${name} ALIAS sluice_${name})
  target_include_directories(sluice_${name} PUBLIC "${PROJECT_SOURCE_DIR}")
  set_target_properties(sluice_${name} PROPERTIES
    POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_link_libraries(sluice_${name} PUBLIC sluice_build_flags ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
endfunction()

# sluice_embed_text(<variable> <namespace> <name> <file>): appends a source to the variable, in which `extern const std::string_view <name>` is the
# file's text.
function(sluice_embed_text variable namespace name file)
  set(out "${CMAKE_CURRENT_BINARY_DIR}/${name}.cc")
  set(script "${PROJECT_SOURCE_DIR}/cmake/EmbedText.cmake")
  add_custom_command(OUTPUT "${out}"
    COMMAND "${CMAKE_COMMAND}" -D "TEXT=${file}" -D "NAMESPACE=${namespace}" -D "NAME=${name}" -D "OUT=${out}" -P "${script}"
    DEPENDS "${file}" "${script}"
    VERBATIM)
  set(${variable} ${${variable}} "${out}" PARENT_SCOPE)
endfunction()

# sluice_closed_module(<target> <map>): a module that somebody else's process loads. Nothing of it is seen but what the map names, and the C++
# library is inside: it must not meet the one of that process. It is never unloaded: threads, or others, may hold addresses of it.
function(sluice_closed_module target map)
  set_target_properties(${target} PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib" CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    LINK_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${map}")
  target_link_options(${target} PRIVATE
    "LINKER:--version-script=${CMAKE_CURRENT_SOURCE_DIR}/${map}" "LINKER:--exclude-libs,ALL" "LINKER:-z,nodelete" "LINKER:-z,now")
  if(NOT SLUICE_SANITIZE)
    target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc "LINKER:--no-undefined")
  endif()
endfunction()
