# Included by the install script with `file`, `written` (a folder of the build) and `destination` set.
get_filename_component(compressed "${file}" NAME)
string(APPEND compressed .gz)
file(MAKE_DIRECTORY "${written}")
execute_process(COMMAND gzip -9nc "${file}" OUTPUT_FILE "${written}/${compressed}" COMMAND_ERROR_IS_FATAL ANY)
file(INSTALL "${written}/${compressed}" DESTINATION "${destination}")
