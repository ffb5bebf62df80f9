# cmake -D TEXT=<file> -D NAMESPACE=<namespace> -D NAME=<constant> -D OUT=<file> -P EmbedText.cmake
# Writes the definition of the constant, a std::string_view with the text of the file. sluice_embed_text() in
# SluiceTargets.cmake calls this script.
file(READ "${TEXT}" text)
if(text MATCHES "\\)embedded\"")
  message(FATAL_ERROR "${TEXT} contains the end delimiter of a raw string literal, )embedded\"")
endif()
# The C++ standard guarantees literals of up to 65536 characters.
string(LENGTH "${text}" length)
if(length GREATER 65000)
  message(FATAL_ERROR "${TEXT} is too long for one literal: ${length} bytes; the limit is 65000")
endif()
file(WRITE "${OUT}" "#include <string_view>

namespace ${NAMESPACE} {

extern const std::string_view ${NAME};
const std::string_view ${NAME} = R\"embedded(${text})embedded\";

}  // namespace ${NAMESPACE}
")
