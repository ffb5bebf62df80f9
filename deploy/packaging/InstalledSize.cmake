# Corrects the field Installed-Size of the packages: CPack counts the target of each symbolic link as a file of its own.
foreach(deb IN LISTS CPACK_PACKAGE_FILES)
  set(root "${CPACK_TEMPORARY_DIRECTORY}/installed_size")
  file(REMOVE_RECURSE "${root}")
  execute_process(COMMAND dpkg-deb --raw-extract "${deb}" "${root}" COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND find "${root}" -type l OUTPUT_VARIABLE links)
  if(links STREQUAL "")
    continue()
  endif()
  # As dpkg-gencontrol: KiB of each file, 1 KiB for anything else.
  execute_process(COMMAND find "${root}" -path "${root}/DEBIAN" -prune -o -mindepth 1 -type f -printf "%s\\n" -o -mindepth 1 -printf "1\\n"
                  COMMAND awk "{ sum += int(($1 + 1023) / 1024) } END { print sum }"
                  OUTPUT_VARIABLE size OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  file(READ "${root}/DEBIAN/control" control)
  string(REGEX REPLACE "Installed-Size: [0-9]+" "Installed-Size: ${size}" control "${control}")
  file(WRITE "${root}/DEBIAN/control" "${control}")
  execute_process(COMMAND dpkg-deb --build -Zgzip --root-owner-group "${root}" "${deb}" OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
endforeach()
