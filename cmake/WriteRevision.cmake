# cmake -D SOURCE=<folder> -D OUT=<file> -P WriteRevision.cmake
# Writes the definition of sluice::revision() to OUT. The script changes OUT only when the revision changes, so that a
# build without a new commit compiles nothing.
find_package(Git QUIET)
set(REVISION "unknown")
# `git archive` writes the revision to this file; in a checkout the file contains the placeholder.
if(EXISTS "${SOURCE}/cmake/archive_revision.txt")
  file(STRINGS "${SOURCE}/cmake/archive_revision.txt" archived LIMIT_COUNT 1)
  if(archived MATCHES "^[^$]+$")
    set(REVISION "${archived}")
  endif()
endif()
if(GIT_FOUND)
  # The folder may be an archive inside another repository, whose revision does not apply.
  execute_process(COMMAND "${GIT_EXECUTABLE}" rev-parse --show-toplevel WORKING_DIRECTORY "${SOURCE}"
                  OUTPUT_VARIABLE top OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  file(REAL_PATH "${SOURCE}" source)
  if(top STREQUAL source)
    execute_process(COMMAND "${GIT_EXECUTABLE}" describe --always --dirty WORKING_DIRECTORY "${SOURCE}"
                    OUTPUT_VARIABLE described OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(described)
      set(REVISION "${described}")
    endif()
  endif()
endif()
file(CONFIGURE OUTPUT "${OUT}" @ONLY CONTENT [[
#include "core/revision.h"

namespace sluice {

const char* revision() noexcept {
  return "@REVISION@";
}

}  // namespace sluice
]])
