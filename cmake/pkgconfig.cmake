# Writes and installs trireme.pc. Its paths are relative to the file itself, so that they are right
# wherever the installed tree lies: another --prefix, DESTDIR, a copy.
set(PC_LIBDIR "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
set(PC_INCLUDEDIR "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
set(PC_PREFIX "${CMAKE_INSTALL_PREFIX}")
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}" OR IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
  set(PC_LIBDIR "${CMAKE_INSTALL_FULL_LIBDIR}")
  set(PC_INCLUDEDIR "${CMAKE_INSTALL_FULL_INCLUDEDIR}")
else()
  file(RELATIVE_PATH up "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
  string(REGEX REPLACE "/$" "" up "${up}")
  set(PC_PREFIX "\${pcfiledir}/${up}")
endif()

# What a program that links libtrireme.a needs in addition.
set(private ${LIBS_LDFLAGS})
get_filename_component(dnnl_folder "${DNNL_LIBRARY}" DIRECTORY)
list(APPEND private "-L${dnnl_folder}")
foreach(library dnnl ${OpenMP_C_LIB_NAMES} dl m)
  list(APPEND private "-l${library}")
endforeach()
list(REMOVE_DUPLICATES private)
foreach(folder ${CMAKE_C_IMPLICIT_LINK_DIRECTORIES})
  list(REMOVE_ITEM private "-L${folder}")
endforeach()
list(JOIN private " " PC_LIBS_PRIVATE)

configure_file(trireme.pc.in trireme.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/trireme.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
