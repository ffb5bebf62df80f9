# Compresses `file` into the build folder `written` and installs it in `destination`. The install script sets these variables.
get_filename_component(compressed "${file}" NAME)
string(APPEND compressed .gz)
file(MAKE_DIRECTORY "${written}")
execute_process(COMMAND gzip -9nc "${file}" OUTPUT_FILE "${written}/${compressed}" COMMAND_ERROR_IS_FATAL ANY)
file(INSTALL "${written}/${compressed}" DESTINATION "${destination}")
