# cmake -D TEXT=<file> -D NAMESPACE=<namespace> -D NAME=<constant> -D OUT=<file> -P EmbedText.cmake: the definition of that constant, a std::string_view of the
# file's text. sluice_embed_text() of SluiceTargets.cmake calls it.
file(READ "${TEXT}" text)
if(text MATCHES "\\)embedded\"")
  message(FATAL_ERROR "${TEXT} holds what ends the literal that it is put into")
endif()
# A compiler need not take a literal of more than 65536 characters.
string(LENGTH "${text}" length)
if(length GREATER 65000)
  message(FATAL_ERROR "${TEXT} has grown too long for one literal: ${length} bytes")
endif()
file(WRITE "${OUT}" "#include <string_view>

namespace ${NAMESPACE} {

extern const std::string_view ${NAME};
const std::string_view ${NAME} = R\"embedded(${text})embedded\";

}  // namespace ${NAMESPACE}
")
