# cmake -D TABLE=<csv> -D OUT=<file> -P EmbedTable.cmake: the definition of sluice::config::kVmTable, the table's text.
file(READ "${TABLE}" text)
if(text MATCHES "\\)table\"")
  message(FATAL_ERROR "${TABLE} holds what ends the literal that it is put into")
endif()
# A compiler need not take a literal of more than 65536 characters.
string(LENGTH "${text}" length)
if(length GREATER 65000)
  message(FATAL_ERROR "${TABLE} has grown too long for one literal: ${length} bytes")
endif()
file(WRITE "${OUT}" "namespace sluice::config {\n\nextern const char* const kVmTable;\nconst char* const kVmTable = R\"table(${text})table\";\n\n}  // namespace sluice::config\n")
