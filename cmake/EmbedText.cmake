# cmake -D OUT=<file> -D FOLDER=<folder> -P EmbedText.cmake: the definitions of reducer/admin/page_parts.h. What is embedded is below 64 KiB a
# file, as much as a literal may hold everywhere.
foreach(part document style script)
  set(name_document index.html)
  set(name_style page.css)
  set(name_script page.js)
  file(READ "${FOLDER}/${name_${part}}" ${part})
  string(FIND "${${part}}" ")====\"" ends_early)
  if(NOT ends_early EQUAL -1)
    message(FATAL_ERROR "${name_${part}} holds the end of the literal that it is put into")
  endif()
endforeach()
file(CONFIGURE OUTPUT "${OUT}" @ONLY CONTENT [=[
#include "reducer/admin/page_parts.h"

namespace sluice::reducer::admin {

const std::string_view kPageDocument = R"====(@document@)====";
const std::string_view kPageStyle = R"====(@style@)====";
const std::string_view kPageScript = R"====(@script@)====";

}  // namespace sluice::reducer::admin
]=])
