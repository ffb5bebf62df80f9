# cmake -D TEXT=<file> -D NAME=<constant> -D OUT=<file> -P EmbedText.cmake: the definition of sluice::config::NAME, the file's text.
file(READ "${TEXT}" text)
if(text MATCHES "\\)embedded\"")
  message(FATAL_ERROR "${TEXT} holds what ends the literal that it is put into")
endif()
# A compiler need not take a literal of more than 65536 characters.
string(LENGTH "${text}" length)
if(length GREATER 65000)
  message(FATAL_ERROR "${TEXT} has grown too long for one literal: ${length} bytes")
endif()
file(WRITE "${OUT}" "namespace sluice::config {\n\nextern const char* const ${NAME};\nconst char* const ${NAME} = R\"embedded(${text})embedded\";\n\n}  // namespace sluice::config\n")
